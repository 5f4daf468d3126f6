package catalogue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

// hostile contains suffixes with which a tenant may try to write more than one
// value.
var hostile = map[string]string{
	"LineBreaks": "\n  zz: 1\nrbac:\n  clusterScoped: true\n#",
	"Returns":    "\r  zz: 1\rrbac: {clusterScoped: true}\r#",
	"Separators": "\u2028zz: 1\u0085rbac: {}",
	"Quotes":     `", rbac: {"a": "b"}, zz: "`,
	"Single":     "', rbac: {a: b}, zz: '",
	"Flow":       "}, rbac: {a: b}, zz: {",
	"List":       "], rbac: [a], zz: [",
	"Mapping":    ": {a: b}",
	"Comment":    " # ",
	"Template":   `{{ "x" }}${clusterName}`,
	"Backslash":  "\\",
	"Tag":        " !!binary |",
}

// poisoned returns the facts of a site where every text that a tenant writes
// has this suffix.
func poisoned(s sites.Site, ending string) *modules.Facts {
	f := s.Facts()
	f.Network.Domain += ending
	f.Endpoint.Host += ending
	f.Cluster.ID += ending
	for i := range f.Network.Pods {
		f.Network.Pods[i] += ending
	}
	f.Platform, _ = poison(f.Platform, ending, "mode").(map[string]any)
	f.Hypervisor.Spec, _ = poison(f.Hypervisor.Spec, ending, "kind").(map[string]any)
	f.Hypervisor.SetServer(f.Hypervisor.Server + ending)
	f.Hypervisor.CABundle += ending
	f.Images = modules.ImagesOf(f.Platform)
	f.DNS = modules.DNSOf(f.Platform, f.Network.Services)
	return f
}

// poison changes all texts except those of a key that conditions need.
func poison(value any, ending, spared string) any {
	switch v := value.(type) {
	case string:
		return v + ending
	case map[string]any:
		out := map[string]any{}
		for key, item := range v {
			if out[key] = item; key != spared {
				out[key] = poison(item, ending, spared)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, item := range v {
			out = append(out, poison(item, ending, spared))
		}
		return out
	}
	return value
}

// structure lists the paths of a document with the kind of each value.
func structure(at string, value any, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			structure(at+"/"+key, item, into)
		}
	case []any:
		for i, item := range v {
			structure(fmt.Sprintf("%s/%d", at, i), item, into)
		}
	default:
		into[fmt.Sprintf("%s %T", at, v)] = true
	}
}

// shape is the structure of all objects of a set.
func shape(t *testing.T, set string, facts *modules.Facts) []string {
	t.Helper()
	rendering, err := modules.Render(content(t, set), modules.Target{
		Namespace: "team", Name: "alpha", Set: set, Origin: "team", Revision: "0123456789", Facts: facts,
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, m := range rendering.Modules {
		if release, ok := m.Object.(*helmv2.HelmRelease); ok {
			var values any
			if err := json.Unmarshal(release.Spec.Values.Raw, &values); err != nil {
				t.Fatal(err)
			}
			structure(m.Name, values, out)
			continue
		}
		if m.Object == nil {
			continue
		}
		for _, o := range delivered(t, m) {
			structure(m.Name+"/"+o.GetKind()+"/"+o.GetName(), o.Object, out)
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// A tenant's texts are values and never become keys, whatever they contain.
func TestHostileFacts(t *testing.T) {
	for name, s := range named(t) {
		for _, set := range Names() {
			want := shape(t, set, s.Facts())
			for kind, ending := range hostile {
				t.Run(strings.Join([]string{name, set, kind}, " "), func(t *testing.T) {
					got := shape(t, set, poisoned(s, ending))
					if !slices.Equal(got, want) {
						for _, path := range got {
							if !slices.Contains(want, path) {
								t.Errorf("%s was not there", path)
							}
						}
						for _, path := range want {
							if !slices.Contains(got, path) {
								t.Errorf("%s is missing", path)
							}
						}
					}
				})
			}
		}
	}
}

// No text of a tenant selects an image of the management cluster.
func TestManagementImagesAreTheAdministrators(t *testing.T) {
	for name, s := range named(t) {
		f := s.Facts()
		f.Platform = map[string]any{"imageRepository": "evil.example/x"}
		f.Images = modules.ImagesOf(f.Platform)
		rendering, err := modules.Render(content(t, Management), modules.Target{
			Namespace: "team", Name: "alpha", Set: Management, Origin: "team", Facts: f, ManagementImages: "hub.example/platform",
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rendering.Modules {
			data, err := json.Marshal(m.Object)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), "evil.example") || !m.Off && !strings.Contains(string(data), "hub.example/platform") {
				t.Errorf("%s: module %s uses images of the tenant: %s", name, m.Name, data)
			}
		}
	}
}
