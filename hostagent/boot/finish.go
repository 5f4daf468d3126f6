package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/balancer"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
)

const (
	adminConf = kubernetes + "/admin.conf"
	cloudDir  = "/var/lib/cloud"
	// cloudDisabled keeps cloud-init from running on a later boot.
	cloudDisabled = "/etc/cloud/cloud-init.disabled"

	// applyAttempts and applyPause limit how long objects are applied: a new CRD
	// takes a moment to be served, and other machines may be joining.
	applyAttempts = 60
	applyPause    = 5 * time.Second
)

// finish starts the load balancer, applies objects in the cluster, and runs the
// user's last commands.
func (b *boot) finish(ctx context.Context) error {
	j := &b.c.Join
	if j.BalancerPort != 0 {
		b.step(ctx, "Starting the API load balancer")
		if err := balancer.Start(ctx, b.m, j.BalancerPort); err != nil {
			return err
		}
	}
	if len(j.Manifests) > 0 || j.KubeProxyPort != 0 {
		b.step(ctx, "Applying the objects of the cluster")
		client, err := cluster.Load(b.m.At(adminConf))
		if err != nil {
			return err
		}
		for _, manifest := range j.Manifests {
			if err := b.repeat(ctx, func() error { return client.Apply(ctx, manifest) }); err != nil {
				return err
			}
		}
		if j.KubeProxyPort != 0 {
			if err := b.repeat(ctx, func() error { return client.RedirectKubeProxy(ctx, j.KubeProxyPort) }); err != nil {
				return err
			}
		}
	}
	return b.commands(ctx, "postKubeadmCommands", j.After)
}

// repeat repeats a request that fails.
func (b *boot) repeat(ctx context.Context, request func() error) error {
	for attempt := 1; ; attempt++ {
		err := request()
		if err == nil || attempt == applyAttempts {
			return err
		}
		b.m.Logf("%v", err)
		if err := b.m.Sleep(ctx, applyPause); err != nil {
			return err
		}
	}
}

// forgetBootstrapData deletes the copies of the bootstrap data that cloud-init
// keeps on the disk, and the copy that Ignition keeps in memory. cloud-init is
// disabled first: on a later boot without these files it would treat the machine
// as a new instance, or write them again.
func (b *boot) forgetBootstrapData(ctx context.Context) {
	if err := b.m.Remove("/run/ignition.json"); err != nil {
		b.m.Logf("Ignition's copy stays: %v", err)
	}
	if !b.m.Exists(cloudDir) {
		return
	}
	// Without this file on the disk cloud-init would need its copies.
	if err := errors.Join(b.m.Write(cloudDisabled, "", 0o644), b.m.Flush(ctx)); err != nil {
		b.m.Logf("cloud-init's copies stay: %v", err)
		return
	}
	for _, pattern := range []string{
		"instances/*/user-data.txt*", "instances/*/vendor-data*.txt*", "instances/*/cloud-config.txt",
		"instances/*/obj.pkl", "seed/*/user-data", "seed/*/openstack/*/user_data",
	} {
		files, _ := filepath.Glob(b.m.At(filepath.Join(cloudDir, pattern)))
		for _, file := range files {
			if err := shred(file); err != nil {
				b.m.Logf("cloud-init's copy stays: %v", err)
			}
		}
	}
	if err := b.m.Flush(ctx); err != nil {
		b.m.Logf("cloud-init's copies may be on the disk after a reset: %v", err)
	}
}

// shred overwrites a file before it deletes it. The drive of a hypervisor is
// read-only.
func shred(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, os.Remove(path))
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write(make([]byte, info.Size()))
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if removed := os.Remove(path); removed != nil {
		return fmt.Errorf("deleting bootstrap data: %w", errors.Join(err, removed))
	}
	return nil
}
