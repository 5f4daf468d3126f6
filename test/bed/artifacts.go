package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// hostLogs are the log files in a host's directory.
var hostLogs = []string{"console.log", "launch.log", "up/var/log/cloud-init-output.log", "up/var/log/cloud-init.log", "up/var/log/nova-bootstrap.log"}

// CollectArtifacts copies the data that explains a failure into a directory:
// logs of programs and hosts, the objects of Cluster API, and events. Secrets
// are not copied. The error lists the data that could not be read; the rest is
// copied nevertheless.
func (b *Bed) CollectArtifacts(ctx context.Context, dir string) error {
	return errors.Join(
		b.CollectPrograms(filepath.Join(dir, "programs")),
		b.collectHosts(filepath.Join(dir, "hosts")),
		b.dump(ctx, filepath.Join(dir, "objects.yaml"), "get", "cluster-api", "-A", "-o", "yaml"),
		b.dump(ctx, filepath.Join(dir, "events.txt"), "get", "events", "-A", "--sort-by=.lastTimestamp"),
	)
}

// CollectHost copies the logs of a VM's host, running or not, into a directory.
// It does nothing for a VM that has no disk any more.
func (b *Bed) CollectHost(vm, dir string) error {
	return b.collectHostsTo(func(name string) string {
		if name != vm {
			return ""
		}
		return dir
	})
}

// collectHosts copies the logs of all hosts that have a disk, running or not,
// each into a directory that is named as its VM.
func (b *Bed) collectHosts(dir string) error {
	return b.collectHostsTo(func(name string) string { return filepath.Join(dir, name) })
}

// collectHostsTo copies the logs of each host to the folder that where
// returns for its name, if it returns one.
func (b *Bed) collectHostsTo(where func(name string) string) error {
	disks, err := os.ReadDir(b.Hosts())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("collecting logs of hosts: %w", err)
	}
	var errs []error
	for _, disk := range disks {
		path := filepath.Join(b.Hosts(), disk.Name())
		name := disk.Name()
		var spec struct{ Name string }
		if data, err := os.ReadFile(filepath.Join(path, "spec.json")); err == nil && json.Unmarshal(data, &spec) == nil && spec.Name != "" {
			name = spec.Name
		}
		dir := where(filepath.Base(name))
		if dir == "" {
			continue
		}
		for _, log := range hostLogs {
			errs = append(errs, copyMatches(filepath.Join(path, log), dir))
		}
	}
	return errors.Join(errs...)
}

// dump writes the output of kubectl for the management cluster into a file.
func (b *Bed) dump(ctx context.Context, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, b.Program("kubectl"), append([]string{"--kubeconfig", b.Kubeconfig()}, args...)...)
	// All beds have the same address. kubectl caches the kinds of a server by its
	// address, so it would use the kinds of another bed.
	cmd.Env = append(os.Environ(), "NO_PROXY=*", "KUBECACHEDIR="+b.layout.path("kubectl"))
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("collecting objects: %w", err)
	}
	defer func() { _ = file.Close() }()
	cmd.Stdout, cmd.Stderr = file, file
	if err := b.Inside(cmd.Start); err != nil {
		return fmt.Errorf("collecting objects: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("collecting objects into %s: %w", path, err)
	}
	return nil
}

// copyMatches copies files into a directory, which it makes.
func copyMatches(pattern, dir string) error {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("collecting %s: %w", pattern, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("collecting %s: %w", pattern, err)
	}
	for _, match := range matches {
		data, err := os.ReadFile(match)
		if err != nil {
			return fmt.Errorf("collecting %s: %w", match, err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(match)), data, 0o644); err != nil {
			return fmt.Errorf("collecting %s: %w", match, err)
		}
	}
	return nil
}

// CollectPrograms copies the logs of the bed's own programs into a directory.
func (b *Bed) CollectPrograms(dir string) error {
	return copyMatches(filepath.Join(b.Logs(), "*.log"), dir)
}
