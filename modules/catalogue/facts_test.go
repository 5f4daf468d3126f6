package catalogue

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"

	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

func facts(t *testing.T) *sites.Facts {
	t.Helper()
	out, err := sites.ReadFacts(os.DirFS("facts"))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ours are charts of Nova's own, which are not public.
func ours(chart string) bool { return strings.HasPrefix(chart, "nova-") }

// The charts of the catalogue are those that were read, at the same version.
func TestChartsHaveFacts(t *testing.T) {
	known, used := facts(t), map[string]bool{}
	for _, set := range Names() {
		c := content(t, set)
		for i := range c.Modules {
			chart := c.Modules[i].Chart
			if chart == nil || ours(chart.Name) {
				continue
			}
			used[chart.Name] = true
			if f := known.Charts[chart.Name]; f.Version != chart.Version || f.Checksum == "" || f.Source == "" || f.Repository == "" {
				t.Errorf("module %s: facts/charts has version %q of %s, not %s, or lacks its checksum or origin", c.Modules[i].Name, f.Version, chart.Name, chart.Version)
			}
		}
	}
	for name, f := range known.Charts {
		if !used[name] {
			t.Errorf("no module uses the chart %s of facts/charts", name)
		}
		if len(f.Values) < 3 || slices.Contains(f.Values, "") {
			t.Errorf("facts/charts lacks the values of %s", name)
		}
	}
}

// Every value that a module sets is a value of its chart.
func TestValuesAreKnown(t *testing.T) {
	known := facts(t)
	for name, s := range named(t) {
		for _, set := range Names() {
			for _, m := range render(t, set, s).Modules {
				release, ok := m.Object.(*helmv2.HelmRelease)
				if !ok || ours(m.Chart.Name) {
					continue
				}
				var values map[string]any
				if err := json.Unmarshal(release.Spec.Values.Raw, &values); err != nil {
					t.Fatal(err)
				}
				chart := m.Chart.Name
				for _, path := range unknown("", values, slices.Concat(known.Open[chart], known.Charts[chart].Values)) {
					t.Errorf("%s: module %s sets %s, which its chart does not have", name, m.Name, path)
				}
			}
		}
	}
}

// unknown lists the paths of values that are not known. Below a known path
// without known keys everything is allowed.
func unknown(path string, value any, known []string) []string {
	if path != "" && slices.Contains(known, path) {
		return nil
	}
	if m, ok := value.(map[string]any); ok && (path == "" || slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, path+".") })) {
		var out []string
		for key, item := range m {
			out = append(out, unknown(strings.TrimPrefix(path+"."+key, "."), item, known)...)
		}
		return out
	}
	return []string{path}
}

// A chart value that its chart lacks is found.
func TestUnknownValues(t *testing.T) {
	known := []string{"image.tag", "labels"}
	got := unknown("", map[string]any{"image": map[string]any{"tag": "1", "tags": "1"}, "labels": map[string]any{"a": "b"}, "image2": ""}, known)
	slices.Sort(got)
	if want := []string{"image.tags", "image2"}; !slices.Equal(got, want) {
		t.Errorf("unknown values are %v, not %v", got, want)
	}
}

// mirrored is an image, or its repository, in the registry of a closed network.
var mirrored = regexp.MustCompile(regexp.QuoteMeta(sites.Registry) + `/([a-z0-9._/-]+[a-z0-9])`)

// joined writes the name of an image into its repository where a value has both, as the parts of an operator
// have them.
func joined(value any) any {
	switch v := value.(type) {
	case map[string]any:
		repository, _ := v["repository"].(string)
		image, _ := v["image"].(string)
		for key, item := range v {
			v[key] = joined(item)
		}
		if repository != "" && image != "" && !strings.Contains(image, "/") {
			v["repository"] = repository + "/" + image
		}
	case []any:
		for i, item := range v {
			v[i] = joined(item)
		}
	}
	return value
}

// All images that modules name are in the list of images to mirror.
func TestImagesAreListed(t *testing.T) {
	known := facts(t)
	paths := map[string]bool{}
	for _, image := range known.AllImages() {
		_, path, _ := strings.Cut(image, "/")
		repository, tag, _ := strings.Cut(path, ":")
		if tag == "" || tag == "latest" {
			t.Errorf("image %s has no version", image)
		}
		paths[strings.TrimPrefix(repository, "coredns/")] = true
	}
	for _, set := range Names() {
		for _, m := range render(t, set, named(t)["vsphere-hybrid-3"]).Modules {
			if m.Object == nil {
				continue
			}
			data, err := json.Marshal(m.Object)
			if err != nil {
				t.Fatal(err)
			}
			var object any
			if err := json.Unmarshal(data, &object); err != nil {
				t.Fatal(err)
			}
			if data, err = json.Marshal(joined(object)); err != nil {
				t.Fatal(err)
			}
			for _, found := range mirrored.FindAllStringSubmatch(string(data), -1) {
				// The operator image of Cilium gets its suffix from the chart.
				if path := found[1]; !paths[path] && !paths[path+"-generic"] && path != "charts" && path != "catalogue" {
					t.Errorf("module %s uses %s, which is not in facts/images", m.Name, path)
				}
			}
		}
	}
}
