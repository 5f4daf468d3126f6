package host

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// image is how images of a family set up their network.
type image struct {
	packages []string
	// resolv is where they keep the name servers that they ask; empty, if it is
	// /etc/resolv.conf itself.
	resolv string
	// files and links are laid over those of all hosts.
	files, links map[string]string
}

// images are by cloud-init's name of their renderer.
var images = map[string]image{
	"network-manager": {
		packages: []string{"network-manager"},
		files: map[string]string{
			// The network cards of a host are veths.
			"etc/NetworkManager/conf.d/host.conf": "[device]\nmatch-device=type:veth\nmanaged=1\n",
		},
		links: withoutNetworkd,
	},
	"eni": {
		// cloud-init gives routes to "route", and name servers to "resolvconf".
		packages: []string{"ifupdown", "isc-dhcp-client", "net-tools", "resolvconf"},
		resolv:   "/run/resolvconf/resolv.conf",
		links:    withoutNetworkd,
	},
	// As Ubuntu has it: netplan writes the files of networkd.
	"netplan": {
		packages: []string{"netplan.io", "systemd-resolved"},
		resolv:   "/run/systemd/resolve/resolv.conf",
	},
	"networkd": {
		packages: []string{"systemd-resolved"},
		resolv:   "/run/systemd/resolve/resolv.conf",
	},
}

// withoutNetworkd are the links that keep networkd from starting.
var withoutNetworkd = map[string]string{
	"etc/systemd/system/systemd-networkd.service":              "/dev/null",
	"etc/systemd/system/systemd-networkd.socket":               "/dev/null",
	"etc/systemd/system/systemd-networkd-wait-online.service":  "/dev/null",
	"etc/systemd/system/dbus-org.freedesktop.network1.service": "/dev/null",
}

// RendererLayer returns the directory whose files lie over those of Debian in the
// image with a renderer that was prepared.
func (a Assets) RendererLayer(renderer string) string {
	return filepath.Join(a.Renderers[renderer], packagesLayer)
}

// PrepareRenderers makes hosts without Kubernetes, for those whose Spec names
// one of these renderers, or finds them in the cache.
func PrepareRenderers(ctx context.Context, log io.Writer, renderers ...string) (Assets, error) {
	c, err := openCache(ctx, log)
	if err != nil {
		return Assets{}, err
	}
	assets := Assets{Renderers: map[string]string{}}
	if assets.Debian, err = buildRoot(ctx, c, System()); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	if assets.Node, err = buildNode(ctx, c, assets.Debian, distribution{}); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	if assets.Machine, err = buildMachine(ctx, c, assets.Debian); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	for _, renderer := range renderers {
		if assets.Renderers[renderer], err = buildImage(ctx, c, assets.Debian, renderer); err != nil {
			return Assets{}, fmt.Errorf("preparing hosts: %w", err)
		}
	}
	// Hosts without Kubernetes have no images.
	assets.Containerd, err = c.get(ctx, "nothing", nil, func(context.Context, string) error { return nil })
	return assets, err
}

// buildImage makes the layer of an image: its packages, and how it is set up.
func buildImage(ctx context.Context, c cache, debian, renderer string) (string, error) {
	of, ok := images[renderer]
	if !ok {
		return "", fmt.Errorf("no image has the renderer %q", renderer)
	}
	files := map[string]string{
		// The order of the sources is cloud-init's own.
		"etc/cloud/cloud.cfg.d/96-renderer.cfg": "datasource_list: [ConfigDrive, OVF, VMware, None]\n" +
			"system_info:\n  network:\n    renderers: [" + renderer + "]\n",
		"etc/machine-id": "",
	}
	maps.Copy(files, of.files)
	links := map[string]string{"etc/systemd/system/kubelet.service": "/dev/null", "etc/systemd/system/containerd.service": "/dev/null"}
	maps.Copy(links, of.links)
	if of.resolv != "" {
		links["etc/resolv.conf"] = of.resolv
	}
	key := append([]string{filepath.Base(debian), guestScript, renderer, fmt.Sprint(files, links)}, of.packages...)
	return c.get(ctx, "guest", key, func(ctx context.Context, dir string) error {
		if err := installPackages(ctx, debian, dir, of.packages); err != nil {
			return err
		}
		for _, path := range slices.Sorted(maps.Keys(files)) {
			if err := writeFile(filepath.Join(dir, packagesLayer, path), []byte(files[path]), 0o644); err != nil {
				return err
			}
		}
		for _, path := range slices.Sorted(maps.Keys(links)) {
			link := filepath.Join(dir, packagesLayer, path)
			if err := os.RemoveAll(link); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				return err
			}
			if err := os.Symlink(links[path], link); err != nil {
				return err
			}
		}
		return nil
	})
}
