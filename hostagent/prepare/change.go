package prepare

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// unitsDir has the units of systemd that files may add to.
const unitsDir = "/etc/systemd/system/"

// fixed are the settings that are only applied on the first boot.
var fixed = []struct {
	name  string
	value func(c *nodeconfig.Machine) any
}{
	{"kernel arguments", func(c *nodeconfig.Machine) any { return c.KernelArguments }},
	{"partitions", func(c *nodeconfig.Machine) any { return c.Partitions }},
	{"disks", func(c *nodeconfig.Machine) any { return c.Disks }},
	{"mounts", func(c *nodeconfig.Machine) any { return c.Mounts }},
	{"data directory of etcd", func(c *nodeconfig.Machine) any { return c.EtcdDir }},
	{"swap", func(c *nodeconfig.Machine) any { return c.SwapMiB }},
}

// Fixed returns the names of the changed settings that a running machine cannot
// apply.
func Fixed(was, is *nodeconfig.Machine) []string {
	var names []string
	for _, f := range fixed {
		if !reflect.DeepEqual(f.value(was), f.value(is)) {
			names = append(names, f.name)
		}
	}
	return names
}

// Change applies settings to a running machine. The former settings are those
// that are applied, first, and those that an interrupted change may have applied in
// part. Settings that only former ones have are removed. Only steps whose settings differ from one of them run, and only files that
// differ are written. It can be repeated.
func Change(ctx context.Context, m *machine.Machine, former []*nodeconfig.Machine, c *nodeconfig.Machine) error {
	if differs(containerdInput, former, c) {
		if err := keepContainerd(m); err != nil {
			return fmt.Errorf("keeping containerd's configuration: %w", err)
		}
	}
	if err := removeFiles(ctx, m, former, c); err != nil {
		return fmt.Errorf("removing files: %w", err)
	}
	some := *c
	some.Files = ChangedFiles(former, c)
	for _, f := range former {
		// The step is also for settings that are removed.
		some.Proxy, some.TrustCAs, some.Snippets = some.Proxy || f.Proxy, some.TrustCAs || f.TrustCAs, some.Snippets || f.Snippets
	}
	for _, s := range steps {
		if s.input == nil || !differs(s.input, former, c) {
			continue
		}
		m.Logf("Changing %s", s.name)
		err := s.apply(ctx, m, &some)
		if s.name == containerdStep {
			err = endContainerd(ctx, m, former[0], &some, err)
		}
		if err != nil {
			return fmt.Errorf("changing %s: %w", s.name, err)
		}
	}
	return nil
}

// endContainerd ends a change of containerd. It restarts containerd for its other
// files: the step restarts it only for settings. If containerd cannot use its
// configuration, it restores the applied one.
func endContainerd(ctx context.Context, m *machine.Machine, applied, c *nodeconfig.Machine, err error) error {
	if restarted := c.Proxy || c.TrustCAs || c.Mirrors || c.Snippets; err == nil && !restarted {
		err = restartContainerd(ctx, m, c)
	}
	switch {
	case err == nil:
		return m.Remove(keptConfig)
	case errors.Is(err, errContainerdConfig), errors.Is(err, errNoMirrors):
		return errors.Join(err, restoreContainerd(ctx, m, applied, c))
	}
	return err
}

// differs reports whether a part of the settings differs from a former one.
func differs(part func(*nodeconfig.Machine) any, former []*nodeconfig.Machine, c *nodeconfig.Machine) bool {
	return slices.ContainsFunc(former, func(f *nodeconfig.Machine) bool { return !reflect.DeepEqual(part(f), part(c)) })
}

// ChangedFiles returns the files that differ from a former one at the same path. A
// later file at a path replaces an earlier one, so the last one counts.
func ChangedFiles(former []*nodeconfig.Machine, c *nodeconfig.Machine) []nodeconfig.File {
	var changed []nodeconfig.File
	for _, f := range c.Files {
		if differs(func(of *nodeconfig.Machine) any { return filesAt(of, f.Path) }, former, c) {
			changed = append(changed, f)
		}
	}
	return changed
}

func filesAt(c *nodeconfig.Machine, path string) []nodeconfig.File {
	var found []nodeconfig.File
	for _, f := range c.Files {
		if f.Path == path {
			found = append(found, f)
		}
	}
	return found
}

// RemovedFiles returns the paths of former files that the settings do not have.
func RemovedFiles(former []*nodeconfig.Machine, c *nodeconfig.Machine) []string {
	var paths []string
	for _, was := range former {
		for _, f := range was.Files {
			if len(filesAt(c, f.Path)) == 0 && !slices.Contains(paths, f.Path) {
				paths = append(paths, f.Path)
			}
		}
	}
	return paths
}

// removeFiles deletes the files that former settings have written.
func removeFiles(ctx context.Context, m *machine.Machine, former []*nodeconfig.Machine, c *nodeconfig.Machine) error {
	paths := RemovedFiles(former, c)
	if len(paths) == 0 {
		return nil
	}
	if err := m.Remove(paths...); err != nil {
		return err
	}
	if !slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(path, unitsDir) }) {
		return nil
	}
	return m.Run(ctx, "systemctl", "daemon-reload")
}
