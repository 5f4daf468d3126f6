package follow

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

const (
	manifestsDir = "/etc/kubernetes/manifests"
	// keptDir has the manifests of components before a change that has not ended.
	keptDir = "/var/lib/nova/manifests"
	// componentsReady is how long components with other settings or another version may
	// take to become ready, after kubeadm has seen that they were started, and etcd.
	componentsReady = 5 * time.Minute
	componentsPoll  = 2 * time.Second
)

// components are the static pods that a change concerns.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// manifestOf returns the path of the manifest of a static pod.
func manifestOf(name string) string { return path.Join(manifestsDir, name+".yaml") }

func manifestsOf(names []string) []string {
	var files []string
	for _, name := range names {
		files = append(files, manifestOf(name))
	}
	return files
}

// keepManifests copies the manifests before kubeadm replaces them. kubeadm restores
// them only if the same process fails: one that finds the manifests that it would
// write changes nothing and succeeds.
func keepManifests(ctx context.Context, m *machine.Machine) error {
	for _, name := range components {
		content, err := m.Load(manifestOf(name))
		if err != nil {
			return fmt.Errorf("keeping manifests: %w", err)
		}
		if err := m.Write(path.Join(keptDir, name+".yaml"), content, 0o600); err != nil {
			return fmt.Errorf("keeping manifests: %w", err)
		}
	}
	return m.Flush(ctx)
}

// restoreManifests restores the manifests of a change that has not ended.
func restoreManifests(ctx context.Context, m *machine.Machine) error {
	for _, name := range components {
		file, kept := manifestOf(name), path.Join(keptDir, name+".yaml")
		if !m.Exists(kept) {
			continue // the change was interrupted before
		}
		content, err := m.Load(kept)
		if err != nil {
			return fmt.Errorf("restoring manifests: %w", err)
		}
		if m.Read(file) == content {
			continue
		}
		if err := m.Edit(file, content, 0o600); err != nil {
			return fmt.Errorf("restoring manifests: %w", err)
		}
	}
	return forgetManifests(ctx, m)
}

// forgetManifests removes the copies once the manifests are on the disk.
func forgetManifests(ctx context.Context, m *machine.Machine) error {
	if err := m.Flush(ctx); err != nil {
		return err
	}
	return m.Remove(keptDir)
}

// waitForComponents waits until the components of a node are ready.
func waitForComponents(ctx context.Context, m *machine.Machine, client *cluster.Client, node string) error {
	return waitFor(ctx, m, func() error {
		var errs []error
		for _, name := range components {
			errs = append(errs, client.PodReady(ctx, name+"-"+node, nil))
		}
		return errors.Join(errs...)
	})
}

// waitFor waits until there is no error.
func waitFor(ctx context.Context, m *machine.Machine, ready func() error) error {
	for until := m.Now().Add(componentsReady); ; {
		err := ready()
		if err == nil || !m.Now().Before(until) {
			return err
		}
		if err := m.Sleep(ctx, componentsPoll); err != nil {
			return err
		}
	}
}
