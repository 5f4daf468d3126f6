package addons

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Composition describes the additions to a chart of this project.
type Composition struct {
	// Versions are annotations of the chart: the versions of programs that its templates name.
	Versions  map[string]string
	Manifests []Manifests
}

// Manifests are a folder of manifests in a Go module.
type Manifests struct {
	// Module is the Go module, and Path the folder in it.
	Module, Path string
	// Namespace is the namespace that the manifests name. It becomes that of the release. If not set,
	// the manifests are CustomResourceDefinitions.
	Namespace string
	// If is the value of the chart that enables the part. If not set, it is always enabled.
	If string
	// Replace are texts of the manifests, each followed by the one that replaces it in the template.
	Replace []string
	// Without are files of the folder that are not part of the chart.
	Without []string
}

const operatorModule = "github.com/prometheus-operator/prometheus-operator"

// stack has the name and the values of the chart that the catalogue uses for Prometheus' operator,
// Prometheus and Alertmanager. That chart is in no Go module, and its templates do not run here: the
// programs run with the manifests of their own Go modules, and Prometheus and Alertmanager are
// described by templates in this package.
func stack(version, tools, operator, alertmanager, prometheus string) Chart {
	return Chart{
		Name: "kube-prometheus-stack", Version: version, AppVersion: operator, Tools: tools,
		Composed: &Composition{
			Versions: map[string]string{"alertmanager": alertmanager, "prometheus": prometheus},
			Manifests: []Manifests{
				{Module: operatorModule, Path: "example/prometheus-operator-crd"},
				{Module: operatorModule, Path: "example/rbac/prometheus-operator", Namespace: "default", If: "prometheusOperator"},
				{Module: "k8s.io/kube-state-metrics/v2", Path: "examples/standard", Namespace: "kube-system", If: "kubeStateMetrics", Without: []string{"kustomization.yaml"}},
				{Module: operatorModule, Path: "example/rbac/prometheus", Namespace: "default", If: "prometheus", Without: []string{"prometheus.yaml"}},
			},
		},
	}
}

// add adds the manifests to the files of a chart. Its folder of hack/tools pins the modules.
func (c *Composition) add(ctx context.Context, folder string, files map[string]string) error {
	for i, m := range c.Manifests {
		dir, err := tools.ToolDir(ctx, folder, m.Module)
		if err != nil {
			return err
		}
		found, err := readFiles(os.DirFS(filepath.Join(dir, m.Path)))
		if err != nil {
			return fmt.Errorf("reading manifests of %s: %w", m.Module, err)
		}
		for name, text := range found {
			if slices.Contains(m.Without, name) {
				continue
			}
			folder, file, err := m.file(text)
			if err != nil {
				return fmt.Errorf("reading %s of %s: %w", name, m.Module, err)
			}
			files[path.Join(folder, fmt.Sprintf("%d-%s", i, name))] = file
		}
	}
	return nil
}

// file returns the file of a manifest in the chart, and the folder of it.
func (m Manifests) file(manifest string) (folder, file string, err error) {
	if m.Namespace == "" {
		file, err = withoutDescriptions(manifest)
		return "crds", file, err
	}
	manifest = strings.ReplaceAll(manifest, "namespace: "+m.Namespace+"\n", "namespace: {{ .Release.Namespace }}\n")
	manifest = strings.NewReplacer(m.Replace...).Replace(manifest)
	if m.If != "" {
		manifest = fmt.Sprintf("{{- if .Values.%s.enabled }}\n%s\n{{- end }}\n", m.If, manifest)
	}
	return "templates", manifest, nil
}

// withoutDescriptions removes the descriptions of fields from a CustomResourceDefinition. With them the
// record of the Helm release would be larger than a Secret may be.
func withoutDescriptions(manifest string) (string, error) {
	var object any
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		return "", err
	}
	data, err := yaml.Marshal(prune(object))
	return string(data), err
}

func prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			// A field that is named description has a schema.
			if _, text := field.(string); text && key == "description" {
				delete(value, key)
				continue
			}
			value[key] = prune(field)
		}
	case []any:
		for i := range value {
			value[i] = prune(value[i])
		}
	}
	return value
}
