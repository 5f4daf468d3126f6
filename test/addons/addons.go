package addons

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Addon is a module of the catalogue that runs on hosts.
type Addon struct {
	// Module is its name in the catalogue.
	Module string
	// Images are those that its pods run.
	Images []host.Image
	// Chart is the chart that is served for it.
	Chart Chart
}

// Chart is a chart in a Go module.
type Chart struct {
	// Name and Version identify the served chart. Where the module has another version than the
	// catalogue, Version is the module's.
	Name, Version string
	// AppVersion is the version of the program, which is the default tag of its image.
	AppVersion string
	// Tools is the folder of hack/tools that pins Module, and Path the chart's folder in Module.
	Tools, Module, Path string
}

// all are the modules in the order of the catalogue.
var all = []Addon{
	{
		Module: "local-path",
		Images: []host.Image{
			{Ref: "docker.io/rancher/local-path-provisioner:v0.0.30", Program: "local-path-provisioner"},
			// The catalogue names BusyBox, which is no Go program. The provisioner runs a shell
			// script in this image, and Debian's shell runs it too.
			{Ref: "docker.io/library/busybox:1.37.0", Debian: []string{"sh", "mkdir", "rm", "cat", "sleep"}},
		},
		Chart: Chart{
			Name: "local-path-provisioner", Version: "0.0.30", AppVersion: "v0.0.30",
			Tools: "addons", Module: "github.com/rancher/local-path-provisioner", Path: "deploy/chart/local-path-provisioner",
		},
	},
	{
		Module: "metrics-server",
		Images: []host.Image{{
			Ref: "registry.k8s.io/metrics-server/metrics-server:v0.9.0", Program: "metrics-server",
		}},
		Chart: Chart{
			Name: "metrics-server", Version: "3.13.1", AppVersion: "0.9.0",
			Tools: "addons", Module: "sigs.k8s.io/metrics-server", Path: "charts/metrics-server",
		},
	},
}

// Select returns the addons of the named modules of the catalogue.
func Select(modules ...string) ([]Addon, error) {
	var selected []Addon
	for _, name := range modules {
		at := slices.IndexFunc(all, func(a Addon) bool { return a.Module == name })
		if at < 0 {
			return nil, fmt.Errorf("module %s: its programs are not built here", name)
		}
		selected = append(selected, all[at])
	}
	return selected, nil
}

// Images returns the images of addons.
func Images(addons []Addon) []host.Image {
	var images []host.Image
	for _, a := range addons {
		images = append(images, a.Images...)
	}
	return images
}

// Files reads the files of a chart, by their paths below its folder. Chart.yaml has the version and
// the version of the program that the chart is released with: a release sets both.
func (c Chart) Files(ctx context.Context) (map[string]string, error) {
	dir, err := tools.ToolDir(ctx, c.Tools, c.Module)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	root := os.DirFS(filepath.Join(dir, c.Path))
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading chart %s of %s: %w", c.Name, c.Module, err)
	}
	meta := map[string]any{}
	if err := yaml.Unmarshal([]byte(files["Chart.yaml"]), &meta); err != nil {
		return nil, fmt.Errorf("reading Chart.yaml of %s: %w", c.Name, err)
	}
	if meta["name"] != c.Name {
		return nil, fmt.Errorf("reading Chart.yaml of %s: its name is %v", c.Name, meta["name"])
	}
	meta["version"], meta["appVersion"] = c.Version, c.AppVersion
	data, err := yaml.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("writing Chart.yaml of %s: %w", c.Name, err)
	}
	files["Chart.yaml"] = string(data)
	return files, nil
}
