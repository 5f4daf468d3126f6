package manifests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/providers/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Provider is one provider as clusterctl knows it.
type Provider struct {
	// Dir is its folder in config/.
	Dir string
	// Label is its value of the label cluster.x-k8s.io/provider.
	Label string
	// Components is the name of its components file in a release.
	Components string
	// Flag and Name are how clusterctl's commands name it, Type is how its
	// configuration does.
	Flag, Name, Type string
}

// Providers are all providers of this project.
func Providers() []Provider {
	var all []Provider
	for _, p := range registry.All() {
		all = append(all, Provider{
			Dir: p.Manager(), Label: "infrastructure-" + p.Manager(), Components: "infrastructure-components.yaml",
			Flag: "--infrastructure", Name: p.Manager(), Type: "InfrastructureProvider",
		})
	}
	return append(all,
		Provider{
			Dir: "nova-bootstrap", Label: "bootstrap-nova", Components: "bootstrap-components.yaml",
			Flag: "--bootstrap", Name: "nova", Type: "BootstrapProvider",
		},
		Provider{
			Dir: "nova-control-plane", Label: "control-plane-nova", Components: "control-plane-components.yaml",
			Flag: "--control-plane", Name: "nova", Type: "ControlPlaneProvider",
		},
		Provider{
			Dir: "nova-addon", Label: "addon-nova", Components: "addon-components.yaml",
			Flag: "--addon", Name: "nova", Type: "AddonProvider",
		},
	)
}

// Namespace is where the provider is installed.
func (p Provider) Namespace() string { return p.Dir + "-system" }

// ServiceAccount is the user name of the provider's manager.
func (p Provider) ServiceAccount() string {
	return "system:serviceaccount:" + p.Namespace() + ":" + p.Dir + "-manager"
}

// Path is the path of a file in the provider's folder.
func (p Provider) Path(elements ...string) string {
	return filepath.Join(append([]string{tools.Root(), "config", p.Dir}, elements...)...)
}

// Render returns the provider's components file.
func (p Provider) Render(ctx context.Context) ([]byte, error) {
	paths, err := tools.Paths(ctx, os.Stderr, "kubectl")
	if err != nil {
		return nil, fmt.Errorf("finding kubectl: %w", err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, paths["kubectl"], "kustomize", p.Path("default"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w: %s", p.Dir, err, stderr.String())
	}
	return out, nil
}

// Objects parses a file of several YAML documents.
func Objects(file []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(file)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading documents: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, fmt.Errorf("parsing document: %w", err)
		}
		objects = append(objects, object)
	}
}
