package addons

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
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
	// Chart is the chart that is served for it. It is empty if the module has manifests of this project.
	Chart Chart
}

// Chart is a chart in a Go module. If Module is not set, it is the one of this project in the folder
// charts: it takes the catalogue's values for a chart that is in no Go module.
type Chart struct {
	// Name and Version identify the served chart. Where the module has another version than the
	// catalogue, Version is the module's.
	Name, Version string
	// AppVersion is the version of the program, which is the default tag of its image.
	AppVersion string
	// Tools is the folder of hack/tools that pins Module, and Path the chart's folder in Module.
	Tools, Module, Path string
	// Parts are folders of other Go modules that are added to the chart.
	Parts []Part
	// Composed are manifests in Go modules that become templates of the chart.
	Composed *Composition
}

// Part is a number of files in a Go module.
type Part struct {
	// Folder is the folder of the chart that gets the files.
	Folder string
	// Tools is the folder of hack/tools that pins Module, and Files the pattern of the files in Module.
	Tools, Module, Files string
}

// certManagerUser is the user of cert-manager's images, whose pods may not run as root.
const certManagerUser = "1000"

//go:embed all:charts
var charts embed.FS

var (
	currentStack  = stack("88.5.3", "monitoring", "v0.93.1", "v0.34.0", "v3.14.0")
	previousStack = stack("88.5.2", "monitoring-previous", "v0.93.0", "v0.33.1", "v3.14.0")
)

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
	certManager("v1.21.1", "", "cert-manager"),
	{Module: "issuer"},
	{
		Module: "gateway-api",
		Chart: Chart{
			Name: "traefik-crds", Version: "1.18.0", AppVersion: "v1.5.1",
			Parts: []Part{
				{Folder: "gatewayAPI", Tools: "addons", Module: "sigs.k8s.io/gateway-api", Files: "config/crd/standard/gateway.networking.k8s.io_*.yaml"},
				{Folder: "traefik", Tools: "traefik", Module: "github.com/traefik/traefik/v3", Files: "docs/content/reference/dynamic-configuration/traefik.io_*.yaml"},
			},
		},
	},
	{
		Module: "ingress-internal",
		Images: []host.Image{{Ref: "docker.io/library/traefik:v3.7.11", Program: "traefik"}},
		Chart:  Chart{Name: "traefik", Version: "41.3.0", AppVersion: "v3.7.11"},
	},
	{
		Module: "descheduler",
		Images: []host.Image{{
			Ref: "registry.k8s.io/descheduler/descheduler:v0.36.0", Program: "descheduler", Path: "/bin/descheduler",
		}},
		Chart: Chart{
			Name: "descheduler", Version: "0.36.0", AppVersion: "0.36.0",
			Tools: "monitoring", Module: "sigs.k8s.io/descheduler", Path: "charts/descheduler",
		},
	},
	{
		Module: "prometheus-operator",
		Images: []host.Image{
			{Ref: "quay.io/prometheus-operator/prometheus-operator:v0.93.1", Program: "prometheus-operator"},
			{Ref: "quay.io/prometheus-operator/prometheus-config-reloader:v0.93.1", Program: "prometheus-config-reloader", Path: "/bin/prometheus-config-reloader"},
			{Ref: "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.20.0", Program: "kube-state-metrics"},
		},
		Chart: currentStack,
	},
	{
		Module: "alertmanager",
		Images: []host.Image{{Ref: "quay.io/prometheus/alertmanager:v0.34.0", Program: "alertmanager"}},
		Chart:  currentStack,
	},
	{
		Module: "prometheus",
		Images: []host.Image{{Ref: "quay.io/prometheus/prometheus:v3.14.0-distroless", Program: "prometheus"}},
		Chart:  currentStack,
	},
	kedaAddon("2.20.2", "", "keda"),
	{
		Module: "metallb",
		Images: []host.Image{
			{Ref: "quay.io/metallb/controller:v0.16.1", Program: "metallb-controller"},
			{Ref: "quay.io/metallb/speaker:v0.16.1", Program: "metallb-speaker"},
		},
		Chart: Chart{
			Name: "metallb", Version: "0.16.1", AppVersion: "v0.16.1",
			Tools: "metallb", Module: "go.universe.tf/metallb", Path: "charts/metallb",
		},
	},
	{Module: "metallb-pool"},
	{
		Module: "external-dns",
		// The image's program has no provider but RFC 2136.
		Images: []host.Image{{Ref: "registry.k8s.io/external-dns/external-dns:v0.21.0", Program: "external-dns"}},
		Chart: Chart{
			Name: "external-dns", Version: "1.20.0", AppVersion: "0.21.0",
			Tools: "external-dns", Module: "sigs.k8s.io/external-dns", Path: "charts/external-dns",
		},
	},
}

// previous are modules in an earlier version, for tests of upgrades. The versions of the charts of Prometheus and
// Traefik have no other meaning.
var previous = []Addon{
	certManager("v1.21.0", "@v1.21.0", "cert-manager-previous"),
	{
		Module: "ingress-internal",
		Images: []host.Image{{Ref: "docker.io/library/traefik:v3.7.10", Program: "traefik@v3.7.10"}},
		Chart:  Chart{Name: "traefik", Version: "41.2.0", AppVersion: "v3.7.10"},
	},
	{
		Module: "descheduler",
		Images: []host.Image{{
			Ref: "registry.k8s.io/descheduler/descheduler:v0.35.1", Program: "descheduler@v0.35.1", Path: "/bin/descheduler",
		}},
		Chart: Chart{
			Name: "descheduler", Version: "0.35.1", AppVersion: "0.35.1",
			Tools: "monitoring-previous", Module: "sigs.k8s.io/descheduler", Path: "charts/descheduler",
		},
	},
	{
		Module: "prometheus-operator",
		Images: []host.Image{
			{Ref: "quay.io/prometheus-operator/prometheus-operator:v0.93.0", Program: "prometheus-operator@v0.93.0"},
			{Ref: "quay.io/prometheus-operator/prometheus-config-reloader:v0.93.0", Program: "prometheus-config-reloader@v0.93.0", Path: "/bin/prometheus-config-reloader"},
		},
		Chart: previousStack,
	},
	{
		Module: "alertmanager",
		Images: []host.Image{{Ref: "quay.io/prometheus/alertmanager:v0.33.1", Program: "alertmanager@v0.33.1"}},
		Chart:  previousStack,
	},
	kedaAddon("2.20.1", "@v2.20.1", "keda-previous"),
}

// certManager returns cert-manager in a version that a folder of hack/tools pins, and whose programs have a suffix.
func certManager(version, suffix, tools string) Addon {
	addon := Addon{Module: "cert-manager", Chart: Chart{
		Name: "cert-manager", Version: version, AppVersion: version,
		Tools: tools, Module: "github.com/cert-manager/cert-manager", Path: "deploy/charts/cert-manager",
	}}
	for _, name := range []string{"controller", "webhook", "cainjector", "startupapicheck"} {
		addon.Images = append(addon.Images, host.Image{
			Ref: "quay.io/jetstack/cert-manager-" + name + ":" + version, Program: "cert-manager-" + name + suffix, User: certManagerUser,
		})
	}
	return addon
}

// Select returns the addons of the named modules of the catalogue.
func Select(modules ...string) ([]Addon, error) {
	var selected []Addon
	for _, name := range modules {
		addon := find(all, name)
		if addon == nil {
			return nil, fmt.Errorf("module %s: its programs are not built here", name)
		}
		selected = append(selected, *addon)
	}
	return selected, nil
}

// Previous returns addons in their previous version, where they have one. Its images are those that
// differ.
func Previous(addons []Addon) []Addon {
	before := slices.Clone(addons)
	for i := range before {
		if addon := find(previous, before[i].Module); addon != nil {
			before[i] = *addon
		}
	}
	return before
}

func find(among []Addon, module string) *Addon {
	if at := slices.IndexFunc(among, func(a Addon) bool { return a.Module == module }); at >= 0 {
		return &among[at]
	}
	return nil
}

// Images returns the images of addons, each once.
func Images(addons []Addon) []host.Image {
	var images []host.Image
	for _, a := range addons {
		for _, image := range a.Images {
			if !slices.ContainsFunc(images, func(i host.Image) bool { return i.Ref == image.Ref }) {
				images = append(images, image)
			}
		}
	}
	return images
}

// Files reads the files of a chart, by their paths below its folder. Chart.yaml has the version and
// the version of the program that the chart is released with: a release sets both.
func (c Chart) Files(ctx context.Context) (map[string]string, error) {
	files, err := c.sources(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading chart %s: %w", c.Name, err)
	}
	meta := map[string]any{}
	if err := yaml.Unmarshal([]byte(files["Chart.yaml"]), &meta); err != nil {
		return nil, fmt.Errorf("reading Chart.yaml of %s: %w", c.Name, err)
	}
	if meta["name"] != c.Name {
		return nil, fmt.Errorf("reading Chart.yaml of %s: its name is %v", c.Name, meta["name"])
	}
	meta["version"], meta["appVersion"] = c.Version, c.AppVersion
	if c.Composed != nil {
		meta["annotations"] = c.Composed.Versions
	}
	data, err := yaml.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("writing Chart.yaml of %s: %w", c.Name, err)
	}
	files["Chart.yaml"] = string(data)
	return files, nil
}

// sources reads the files of a chart and of its parts.
func (c Chart) sources(ctx context.Context) (map[string]string, error) {
	root, err := c.root(ctx)
	if err != nil {
		return nil, err
	}
	files, err := readFiles(root)
	if err != nil {
		return nil, err
	}
	if c.Composed != nil {
		if err := c.Composed.add(ctx, c.Tools, files); err != nil {
			return nil, err
		}
	}
	for _, part := range c.Parts {
		if err := part.add(ctx, files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// root is the folder of the chart.
func (c Chart) root(ctx context.Context) (fs.FS, error) {
	if c.Module == "" {
		return fs.Sub(charts, path.Join("charts", c.Name))
	}
	dir, err := tools.ToolDir(ctx, c.Tools, c.Module)
	return os.DirFS(filepath.Join(dir, c.Path)), err
}

// add adds the files of the part to those of a chart.
func (p Part) add(ctx context.Context, files map[string]string) error {
	dir, err := tools.ToolDir(ctx, p.Tools, p.Module)
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(dir, p.Files))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("module %s has no files %s", p.Module, p.Files)
	}
	for _, name := range found {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files[path.Join(p.Folder, filepath.Base(name))] = string(data)
	}
	return nil
}

// readFiles reads all files of a folder.
func readFiles(root fs.FS) (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		files[name] = string(data)
		return err
	})
	return files, err
}
