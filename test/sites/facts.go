package sites

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Facts are the known facts about the charts of the catalogue: the content of
// the folder facts. "make catalogue" writes them from the charts themselves.
type Facts struct {
	// Charts are the charts by name.
	Charts map[string]ChartFacts
	// Images are the images of each set, which a closed network mirrors.
	Images map[string][]string
	// Operators are the images that operators run without a module naming them.
	Operators []Operator `json:"operators"`
	// Created are objects that a program or a user creates.
	Created []Created `json:"created"`
	// Values are values that users have to set, by module.
	Values map[string]map[string]any `json:"values"`
	// Open are the paths of values, by chart, that take any keys.
	Open map[string][]string `json:"open"`
}

// ChartFacts are facts about one chart.
type ChartFacts struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	AppVersion string `json:"appVersion,omitempty"`
	// Repository is where the chart is published, and Source the repository with
	// its code, with the tag and the path of the chart.
	Repository string `json:"repository,omitempty"`
	Source     string `json:"source,omitempty"`
	// Kubernetes is the range of versions that the chart names.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Checksum is computed over all files of the chart.
	Checksum string   `json:"checksum"`
	Images   []string `json:"images,omitempty"`
	CRDs     []string `json:"crds,omitempty"`
	// Values are the paths of all values, to a depth of three.
	Values []string `json:"values"`
}

// ImageFacts are the images of a set.
type ImageFacts struct {
	Images []string `json:"images"`
}

// Operator is a program with the images that it runs of itself.
type Operator struct {
	Module string   `json:"module"`
	Source string   `json:"source"`
	Images []string `json:"images"`
}

// Created is an object that no module contains but that exists when it is
// needed.
type Created struct {
	Module string `json:"module"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	By     string `json:"by"`
}

// ReadFacts reads the folder facts.
func ReadFacts(folder fs.FS) (*Facts, error) {
	out := &Facts{Charts: map[string]ChartFacts{}, Images: map[string][]string{}}
	for _, file := range []string{"operators.yaml", "created.yaml", "values.yaml"} {
		if err := readFile(folder, file, out); err != nil {
			return nil, err
		}
	}
	charts, err := readFolder[ChartFacts](folder, "charts")
	if err != nil {
		return nil, err
	}
	for _, chart := range charts {
		out.Charts[chart.Name] = chart
	}
	images, err := readFolder[ImageFacts](folder, "images")
	if err != nil {
		return nil, err
	}
	for set, facts := range images {
		out.Images[set] = facts.Images
	}
	return out, nil
}

// AllImages returns the images of all sets, sorted.
func (f *Facts) AllImages() []string {
	out := slices.Concat(slices.Collect(maps.Values(f.Images))...)
	slices.Sort(out)
	return slices.Compact(out)
}

// readFolder reads the files of a folder, by their names without extension.
func readFolder[T any](folder fs.FS, name string) (map[string]T, error) {
	files, err := fs.ReadDir(folder, name)
	if err != nil {
		return nil, fmt.Errorf("listing facts: %w", err)
	}
	out := map[string]T{}
	for _, file := range files {
		var one T
		if err := readFile(folder, path.Join(name, file.Name()), &one); err != nil {
			return nil, err
		}
		out[strings.TrimSuffix(file.Name(), path.Ext(file.Name()))] = one
	}
	return out, nil
}

func readFile(folder fs.FS, file string, into any) error {
	data, err := fs.ReadFile(folder, file)
	if err != nil {
		return fmt.Errorf("reading facts: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("reading facts %s: %w", file, err)
	}
	return nil
}
