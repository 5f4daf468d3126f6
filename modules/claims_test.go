package modules

import (
	"slices"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"k8s.io/utils/ptr"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// TestClaims: a module claims its place also while its set is invalid.
func TestClaims(t *testing.T) {
	c := Content{
		Sources: []addonsv1.Source{
			{Name: "release", Git: addonsv1.GitSource{URL: "https://code.example/release.git"}},
			{Name: "charts", Helm: addonsv1.HelmSource{URL: "https://charts.example"}},
		},
		Modules: []addonsv1.Module{
			{Name: "chart", Source: "charts", TargetNamespace: "web", Chart: &addonsv1.Chart{Name: "chart"}},
			{Name: "unrenderable", Chart: &addonsv1.Chart{Name: "chart", ValuesTemplate: "a: {{ .facts.nothing }}"}},
			{Name: "unsupported", Kubernetes: ">=99", Chart: &addonsv1.Chart{Name: "chart"}},
			{Name: "enabled", When: "facts.nodes.infra == 3", Chart: &addonsv1.Chart{Name: "chart"}},
			{Name: "disabled", When: "facts.nodes.infra == 4", Chart: &addonsv1.Chart{Name: "chart"}},
			{Name: "undecided", When: "facts.nothing", Chart: &addonsv1.Chart{Name: "chart"}},
			{Name: "management", Location: addonsv1.LocationManagement, Chart: &addonsv1.Chart{Name: "chart"}},
			{Name: "one", DependsOn: []string{"two"}, Kustomize: &addonsv1.Kustomize{Path: "one"}},
			{Name: "two", DependsOn: []string{"one"}, Kustomize: &addonsv1.Kustomize{
				Path: "two", Substitute: []addonsv1.Variable{{Name: "a", Value: ptr.To("{{ .facts.nothing }}")}},
			}},
			{Name: "no-manifests", Source: "charts", Kustomize: &addonsv1.Kustomize{Path: "three"}},
		},
	}
	if err := c.Validate(); err == nil {
		t.Fatal("the content is valid")
	}
	claims, err := Claims(c, target())
	if err != nil {
		t.Fatal(err)
	}
	var releases, paths []string
	for _, o := range claims {
		switch o := o.(type) {
		case *helmv2.HelmRelease:
			if o.Spec.KubeConfig == nil {
				t.Errorf("%s is in the management cluster", o.Spec.ReleaseName)
			}
			releases = append(releases, o.Spec.StorageNamespace+"/"+o.Spec.ReleaseName)
		case *kustomizev1.Kustomization:
			paths = append(paths, o.Annotations[addonsv1.PlaceAnnotation])
		}
	}
	if want := []string{"web/chart", "default/unrenderable", "default/unsupported", "default/enabled", "default/undecided"}; !slices.Equal(releases, want) {
		t.Errorf("releases are %v, want %v", releases, want)
	}
	if all, err := Claims(c, Target{Name: "a"}); err != nil || len(all) != len(claims)+1 {
		t.Errorf("without facts %d objects are claimed, %v, want also the disabled one of %d", len(all), err, len(claims)+1)
	}
	if len(paths) != 2 || paths[0] == paths[1] {
		t.Errorf("places of paths are %v, want two", paths)
	}
}

// TestClaimsOfRenderedModules: a claim has the place of the object that is written.
func TestClaimsOfRenderedModules(t *testing.T) {
	c := content(t, "set.yaml")
	rendering, err := Render(c, target())
	if err != nil {
		t.Fatal(err)
	}
	claims, err := Claims(c, target())
	if err != nil {
		t.Fatal(err)
	}
	place := func(o any) string {
		switch o := o.(type) {
		case *helmv2.HelmRelease:
			return o.Spec.StorageNamespace + "/" + o.Spec.ReleaseName
		case *kustomizev1.Kustomization:
			return o.Annotations[addonsv1.PlaceAnnotation]
		}
		return ""
	}
	var claimed, written []string
	for _, o := range claims {
		claimed = append(claimed, place(o))
	}
	for i := range rendering.Modules {
		if m := &rendering.Modules[i]; m.Object != nil && m.InWorkloadCluster {
			written = append(written, place(m.Object))
		}
	}
	for _, at := range written {
		if at == "" || !slices.Contains(claimed, at) {
			t.Errorf("no claim has the place %q: %v", at, claimed)
		}
	}
	if len(written) < 2 {
		t.Errorf("only %v are written", written)
	}
}
