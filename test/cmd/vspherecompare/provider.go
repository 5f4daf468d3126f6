package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// The names of the providers.
const (
	ours   = "nova-vsphere"
	theirs = "capv"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// provider is a measured infrastructure provider. All differences between two of them are here and
// in the manifests of that name.
type provider struct {
	name string
	// group and the kinds are those of its objects.
	version                  schema.GroupVersion
	clusterKind, machineKind string
	// tool is its name in hack/tools; if not set, it is built from this work tree.
	tool string
	// module is the module with its components; if not set, this work tree is used.
	module     string
	components string
}

func providers() []provider {
	version := schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}
	return []provider{{
		name: ours, version: version, clusterKind: "NovaVSphereCluster", machineKind: "NovaVSphereMachine",
		components: "config/nova-vsphere/default",
	}, {
		name: theirs, version: version, clusterKind: "VSphereCluster", machineKind: "VSphereMachine",
		tool: "capv", module: "sigs.k8s.io/cluster-api-provider-vsphere", components: "config/default",
	}}
}

func providerOf(name string) (provider, error) {
	for _, p := range providers() {
		if p.name == name {
			return p, nil
		}
	}
	return provider{}, fmt.Errorf("no provider %q", name)
}

// pinned are the tools among the named providers.
func pinned(names []string) []string {
	var out []string
	for _, name := range names {
		if p, err := providerOf(name); err == nil && p.tool != "" {
			out = append(out, p.tool)
		}
	}
	return out
}

// prepare builds the provider where it is not a pinned tool, and fetches the
// module that its components are in.
func (p provider) prepare(ctx context.Context, bin string) error {
	if p.module != "" {
		_, err := p.source(ctx)
		return err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("building %s: %w", p.name, err)
	}
	return tools.Build(ctx, filepath.Join(bin, p.name), "", "./cmd/"+p.name)
}

// program is the path of the manager.
func (p provider) program(ctx context.Context, bin string) (string, error) {
	if p.tool == "" {
		return filepath.Join(bin, p.name), nil
	}
	paths, err := tools.Paths(ctx, os.Stderr, p.tool)
	return paths[p.tool], err
}

// source is where the provider's components are.
func (p provider) source(ctx context.Context) (string, error) {
	if p.module == "" {
		return filepath.Join(tools.Root(), p.components), nil
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.module)
	cmd.Dir = filepath.Join(tools.Root(), "hack", "tools", p.tool)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("fetching %s: %w", p.module, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("fetching %s: %w", p.module, err)
	}
	return filepath.Join(module.Dir, p.components), nil
}

// kind is the kind of the provider's clusters or machines.
func (p provider) kind(kind string) schema.GroupVersionKind { return p.version.WithKind(kind) }

// facts are the values for manifests.
type facts struct {
	Namespace, Name                      string
	Server, Thumbprint                   string
	Template, Folder                     string
	Datacenter, Pool, Datastore, Network string
	CPUs, MemoryMiB                      int
}

// cluster and machine are the provider's objects.
func (p provider) cluster(f facts) (*unstructured.Unstructured, error) {
	return fill(p.name+"-cluster", f)
}
func (p provider) machine(f facts) (*unstructured.Unstructured, error) {
	return fill(p.name+"-machine", f)
}

func fill(name string, f facts) (*unstructured.Unstructured, error) {
	text, err := template.New(name+".yaml").Option("missingkey=error").ParseFS(manifests, "manifests/"+name+".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading manifest %s: %w", name, err)
	}
	var filled bytes.Buffer
	object := &unstructured.Unstructured{}
	if err := errors.Join(text.Execute(&filled, f), yaml.Unmarshal(filled.Bytes(), &object.Object)); err != nil {
		return nil, fmt.Errorf("filling manifest %s: %w", name, err)
	}
	return object, nil
}

// flags are the flags that replace the environment of a pod.
func (p provider) flags(certs string) []string {
	if p.name == theirs {
		return []string{"--webhook-cert-dir=" + certs}
	}
	// The simulated vCenter listens on loopback.
	return []string{"--allow-endpoints=127.0.0.0/8"}
}
