package files

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
)

// templates has the files of a provider, with << >> around the differences.
//
//go:embed config templates
var templates embed.FS

// Write writes all files for the providers to the work tree root.
func Write(root string, providers []*provider.Info) error {
	written, err := page(providers)
	if err != nil {
		return err
	}
	for _, p := range providers {
		own, err := Of(root, p)
		if err != nil {
			return err
		}
		maps.Copy(written, own)
	}
	for _, s := range sections {
		text, err := os.ReadFile(filepath.Join(root, s.file))
		if err != nil {
			return fmt.Errorf("reading %s: %w", s.file, err)
		}
		replaced, err := s.replace(string(text), providers)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, s.file), []byte(replaced), 0o600); err != nil { //nolint:gosec // the root is the argument of a developer
			return fmt.Errorf("writing %s: %w", s.file, err)
		}
	}
	for _, p := range providers {
		for _, folder := range []string{"config", "templates"} {
			if err := removeStale(root, path.Join(folder, p.Manager()), written); err != nil {
				return fmt.Errorf("removing files without a template: %w", err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		target := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o750), os.WriteFile(target, written[name], 0o600)); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// source begins the first line of a YAML file, followed by its template.
const source = "# Generated from hack/providers/files/"

// removeStale removes the generated files of a folder that are not written any
// more, and the folders that become empty.
func removeStale(root, folder string, written map[string][]byte) error {
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		if entry.IsDir() {
			err = removeStale(root, name, written)
		} else if _, current := written[name]; !current {
			err = removeGenerated(filepath.Join(root, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeGenerated removes a file if it is generated, and its folder if that is
// empty then.
func removeGenerated(file string) error {
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), source) {
		return err
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) > 0 {
		return err
	}
	return os.Remove(filepath.Dir(file))
}

// Of returns the files of one provider, by their path in the work tree root.
func Of(root string, p *provider.Info) (map[string][]byte, error) {
	metadata, err := os.ReadFile(filepath.Join(root, "metadata.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the release series: %w", err)
	}
	written := map[string][]byte{path.Join("config", p.Manager(), "metadata.yaml"): metadata}
	err = fs.WalkDir(templates, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(templates, name)
		if err != nil {
			return err
		}
		written[target(name, p)], err = render(name, string(text), p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the files of %s: %w", p.Manager(), err)
	}
	return written, nil
}

// target returns the path in the work tree of a rendered template.
func target(name string, p *provider.Info) string {
	folder, inside, _ := strings.Cut(strings.TrimSuffix(name, ".tmpl"), "/")
	if inside == "clusterclass.yaml" {
		inside = "clusterclass-" + p.Manager() + ".yaml"
	}
	return path.Join(folder, p.Manager(), inside)
}

// render renders a template. YAML files get a comment that names the source.
func render(name, text string, p *provider.Info) ([]byte, error) {
	t, err := template.New(name).Delims("<<", ">>").Parse(text)
	if err == nil {
		_, err = t.New("class").Parse(p.Class)
	}
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	var out bytes.Buffer
	if strings.HasSuffix(name, ".yaml.tmpl") {
		fmt.Fprintf(&out, "%s%s by hack/generate.sh.\n", source, name)
	}
	if err := t.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return out.Bytes(), nil
}
