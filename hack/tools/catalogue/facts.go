package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

// facts are the known facts about charts.
type facts struct {
	sites.Facts
}

// folder is the folder of the facts.
func folder(root string) string { return filepath.Join(root, "modules", "catalogue", "facts") }

func readFacts(root string) (*facts, error) {
	read, err := sites.ReadFacts(os.DirFS(folder(root)))
	if err != nil {
		return nil, fmt.Errorf("reading facts: %w", err)
	}
	return &facts{Facts: *read}, nil
}

// operatorImages are the images that operators run of themselves.
func (f *facts) operatorImages() []string {
	var out []string
	for _, o := range f.Operators {
		out = append(out, o.Images...)
	}
	return out
}

// madeAtRunTime returns whether a program of the module, or its user, creates an
// object.
func (f *facts) madeAtRunTime(module, kind, name string) bool {
	return slices.ContainsFunc(f.Created, func(c sites.Created) bool {
		return c.Module == module && c.Kind == kind && c.Name == name
	})
}

// recordFacts writes the facts of all used charts, and the list of images.
func recordFacts(root string, r *renderer, i *images) error {
	for name, c := range r.used {
		f, err := factsOf(r, name, c)
		if err != nil {
			return err
		}
		known := i.facts.Charts[c.Name()]
		f.Repository, f.Source = known.Repository, known.Source
		if err := write(filepath.Join(folder(root), "charts", c.Name()+".yaml"), f); err != nil {
			return err
		}
	}
	// Files of removed charts and sets would stay.
	if err := removeOthers(filepath.Join(folder(root), "charts"), names(r.used)); err != nil {
		return err
	}
	if err := removeOthers(filepath.Join(folder(root), "images"), slices.Collect(maps.Keys(i.open))); err != nil {
		return err
	}
	i.facts.Images = map[string][]string{}
	for set, images := range i.open {
		i.facts.Images[set] = slices.Sorted(maps.Keys(images))
		if err := write(filepath.Join(folder(root), "images", set+".yaml"), sites.ImageFacts{Images: i.facts.Images[set]}); err != nil {
			return err
		}
	}
	return nil
}

func names(charts map[string]*chartv2.Chart) []string {
	var out []string
	for _, c := range charts {
		out = append(out, c.Name())
	}
	return out
}

// removeOthers removes the files of a folder that have none of the names.
func removeOthers(folder string, names []string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("listing facts: %w", err)
	}
	for _, file := range files {
		if slices.Contains(names, strings.TrimSuffix(file.Name(), ".yaml")) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, file.Name())); err != nil {
			return fmt.Errorf("removing facts: %w", err)
		}
	}
	return nil
}

func write(path string, value any) error {
	data, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding facts: %w", err)
	}
	text := "# Written by \"make catalogue CHARTS=FOLDER RECORD=1\".\n" + string(data)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing facts: %w", err)
	}
	return nil
}

func factsOf(r *renderer, name string, c *chartv2.Chart) (*sites.ChartFacts, error) {
	sum, err := checksum(filepath.Join(r.charts, name))
	if err != nil {
		return nil, err
	}
	values, err := util.CoalesceValues(c, map[string]any{})
	if err != nil {
		return nil, fmt.Errorf("reading the values of %s: %w", name, err)
	}
	keys := map[string]bool{}
	leaves("", c.Values, keys) // values that are not set
	leaves("", map[string]any(values), keys)
	named(c, "", keys)
	for _, d := range c.Dependencies() {
		if !r.enabled[name+"/"+d.Name()] {
			maps.DeleteFunc(keys, func(key string, _ bool) bool {
				return strings.HasPrefix(key, d.Name()+".")
			})
			leaves(d.Name(), c.Values[d.Name()], keys)
		}
	}
	out := &sites.ChartFacts{
		Name: c.Name(), Version: c.Metadata.Version, AppVersion: c.Metadata.AppVersion, Kubernetes: c.Metadata.KubeVersion, Checksum: sum,
		Values: slices.Sorted(maps.Keys(keys)), Images: slices.Sorted(maps.Keys(r.images[name])),
	}
	for key, objects := range r.cache {
		if !strings.HasPrefix(key, name+" ") {
			continue
		}
		for _, o := range objects {
			if o.GetKind() == "CustomResourceDefinition" && !slices.Contains(out.CRDs, o.GetName()) {
				out.CRDs = append(out.CRDs, o.GetName())
			}
		}
	}
	slices.Sort(out.CRDs)
	return out, nil
}

// depth is the number of levels of values whose keys are recorded.
const depth = 3

// leaves lists the paths of values. An object without keys takes any.
func leaves(path string, value any, into map[string]bool) {
	m, ok := value.(map[string]any)
	if !ok || len(m) == 0 || strings.Count(path, ".") >= depth-1 && path != "" {
		into[path] = true
		return
	}
	for key, item := range m {
		if strings.ContainsAny(key, ". ") {
			continue
		}
		leaves(strings.TrimPrefix(path+"."+key, "."), item, into)
	}
}

// reference is a value in a template.
var reference = regexp.MustCompile(`\.Values((?:\.[A-Za-z0-9_]+)+)`)

// named adds the values that templates read but that have no default.
func named(c *chartv2.Chart, prefix string, into map[string]bool) {
	for _, t := range c.Templates {
		for _, found := range reference.FindAllStringSubmatch(string(t.Data), -1) {
			path := strings.TrimPrefix(found[1], ".")
			if parts := strings.Split(prefix+path, "."); len(parts) > depth {
				path = strings.Join(parts[:depth], ".")
			} else {
				path = prefix + path
			}
			if !covered(path, into) {
				into[path] = true
			}
		}
	}
	for _, d := range c.Dependencies() {
		named(d, prefix+d.Name()+".", into)
	}
}

// covered returns whether a path or something above or below it is known.
func covered(path string, keys map[string]bool) bool {
	for at := path; ; {
		if keys[at] {
			return true
		}
		i := strings.LastIndex(at, ".")
		if i < 0 {
			break
		}
		at = at[:i]
	}
	for key := range keys {
		if strings.HasPrefix(key, path+".") {
			return true
		}
	}
	return false
}

// checksum is a checksum of all files of a chart, of their paths and content.
func checksum(folder string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a chart: %w", err)
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return fmt.Errorf("reading a chart: %w", err)
		}
		_, err = fmt.Fprintf(sum, "%s %x\n", name, sha256.Sum256(data))
		return cmp.Or(err)
	})
	if err != nil {
		return "", fmt.Errorf("computing a checksum: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
