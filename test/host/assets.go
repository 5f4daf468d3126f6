package host

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Assets are the directories that hosts boot from. They lie in the cache and
// are never written to once they are there.
type Assets struct {
	// Debian is the root file system, without Kubernetes.
	Debian string
	// Node lies over Debian: settings, Kubernetes programs, guest tools.
	Node string
	// Containerd is a data directory of containerd that holds every image.
	Containerd string
}

// Prepare makes what hosts boot from, or finds it in the cache. It writes a
// line to log for each thing it has to build.
func Prepare(ctx context.Context, log io.Writer) (Assets, error) {
	if err := requireRoot(); err != nil {
		return Assets{}, err
	}
	c, err := newCache(log)
	if err != nil {
		return Assets{}, err
	}
	if err := needPrograms(ctx, c.log, machinePrograms); err != nil {
		return Assets{}, err
	}
	// The network is the limit of one and the processor of the other.
	type result struct {
		programs map[string]string
		err      error
	}
	compiled := make(chan result, 1)
	go func() {
		programs, err := compilePrograms(ctx, c)
		compiled <- result{programs, err}
	}()
	debian, err := c.get(ctx, "debian", debianKey(), buildDebian)
	programs := <-compiled
	if err := errors.Join(err, programs.err); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	assets := Assets{Debian: debian}
	if assets.Node, err = buildNode(ctx, c, debian, programs.programs); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	if assets.Containerd, err = buildContainerd(ctx, c, debian, programs.programs); err != nil {
		return Assets{}, fmt.Errorf("preparing hosts: %w", err)
	}
	return assets, nil
}
