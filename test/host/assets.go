package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Assets are the directories that hosts boot from. They lie in the cache and
// are never written to once they are there.
type Assets struct {
	// Debian is the root file system of a node image, without Kubernetes.
	Debian string
	// Packages lies over Debian: packages that node images do not have.
	Packages string `json:",omitempty"`
	// Node lies over them: settings of node images, and Kubernetes programs. It is not set for the
	// file system of a whole node image.
	Node string
	// Machine lies over all of them: everything that hosts have instead of the hardware of a VM and of
	// guest agents.
	Machine string
	// Agent lies over Node: the host agent of this work tree.
	Agent string `json:",omitempty"`
	// Versions are layers that take the place of Node, by the version of
	// Kubernetes that they have.
	Versions map[string]string `json:",omitempty"`
	// Ignition is the result of PrepareIgnition. If not set, no host boots by
	// Ignition.
	Ignition string `json:",omitempty"`
	// Renderers are layers that lie over the others, by the renderer that they
	// make cloud-init take. See PrepareRenderers.
	Renderers map[string]string `json:",omitempty"`
	// Containerd is a data directory of containerd that holds every image.
	Containerd string
}

// Prepare builds the files from which hosts boot, or finds them in the cache.
// It writes a line to log for each file that it has to build. Hosts run
// KubernetesVersion, or another version if their Spec sets it; hack/tools must
// contain that version. Every host has the images of all versions.
func Prepare(ctx context.Context, log io.Writer, others ...string) (Assets, error) {
	c, err := openCache(ctx, log)
	if err != nil {
		return Assets{}, err
	}
	// The network is the limit of one and the processor of the other.
	type result struct {
		distributions []distribution
		err           error
	}
	compiled := make(chan result, 1)
	go func() {
		all, err := compile(ctx, c, append([]string{KubernetesVersion}, others...))
		compiled <- result{all, err}
	}()
	debian, err := buildRoot(ctx, c, System())
	ready := <-compiled
	if err := errors.Join(err, ready.err); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	assets := Assets{Debian: debian, Versions: map[string]string{}}
	if assets.Machine, err = buildMachine(ctx, c, debian); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	for _, d := range ready.distributions {
		layer, err := buildNode(ctx, c, debian, d)
		if err != nil {
			return Assets{}, fmt.Errorf("preparing hosts: %w", err)
		}
		if d.version == KubernetesVersion {
			assets.Node = layer
		} else {
			assets.Versions[d.version] = layer
		}
	}
	if assets.Agent, err = buildAgent(ctx, c); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	if assets.Containerd, err = buildContainerd(ctx, c, debian, ready.distributions); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	return assets, nil
}

// PrepareSystem lets all hosts of the assets boot from the root file system of another system of node
// images, one of Debian's family.
func PrepareSystem(ctx context.Context, log io.Writer, assets *Assets, system string) error {
	c, err := openCache(ctx, log)
	if err != nil {
		return err
	}
	debian, err := buildRoot(ctx, c, system)
	if err != nil {
		return fmt.Errorf("preparing hosts with %s: %w", system, err)
	}
	machine, err := buildMachine(ctx, c, debian)
	if err != nil {
		return fmt.Errorf("preparing hosts with %s: %w", system, err)
	}
	assets.Debian, assets.Machine = debian, machine
	return nil
}

// openCache returns the cache, once all is there that hosts are made with.
func openCache(ctx context.Context, log io.Writer) (cache, error) {
	if err := requireRoot(); err != nil {
		return cache{}, err
	}
	c, err := newCache(log)
	if err != nil {
		return cache{}, err
	}
	return c, needPrograms(ctx, c.log, machinePrograms)
}

// lower are the read-only layers of a host, the upper one first.
func (a Assets) lower(spec Spec) (string, error) {
	system := a.Debian
	if a.Packages != "" {
		system = a.Packages + ":" + system
	}
	layers := system
	if a.Node != "" {
		layers = a.Node + ":" + system
	}
	if version := spec.Kubernetes; version != "" && version != KubernetesVersion {
		node, ok := a.Versions[version]
		if !ok {
			return "", fmt.Errorf("hosts were not prepared for Kubernetes %s", version)
		}
		layers = node + ":" + system
	}
	if a.Agent != "" {
		layers = a.Agent + ":" + layers
	}
	layers = a.Machine + ":" + layers
	if spec.Renderer != "" {
		image, ok := a.Renderers[spec.Renderer]
		if !ok {
			return "", fmt.Errorf("hosts were not prepared for the renderer %q", spec.Renderer)
		}
		layers = filepath.Join(image, packagesLayer) + ":" + layers
	}
	if !spec.Ignition {
		return layers, nil
	}
	if a.Ignition == "" {
		return "", errors.New("hosts were not prepared for Ignition")
	}
	return filepath.Join(a.Ignition, ignitionLayer) + ":" + layers, nil
}
