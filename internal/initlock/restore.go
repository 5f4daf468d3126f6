package initlock

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RestoreKey names the restore that brings the cluster back. While it stands
// there, the machine that the lock names initialises the cluster once more, with
// what etcd held before.
const RestoreKey = "restore"

// Restore is a restore that a lock tells of.
type Restore struct {
	// Name is the restore's; empty if there is none.
	Name string
	// Machine is the one that restores; empty until there is one.
	Machine string
	// Since is when that was said last.
	Since time.Time
}

// ObserveRestore reads which restore goes on.
func ObserveRestore(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (Restore, error) {
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	if apierrors.IsNotFound(err) || err == nil && former(lock, cluster) {
		return Restore{}, nil
	}
	if err != nil {
		return Restore{}, fmt.Errorf("reading init lock: %w", err)
	}
	if lock.Data[RestoreKey] == "" {
		return Restore{}, nil
	}
	since, err := time.Parse(time.RFC3339, lock.Data[SinceKey])
	if err != nil {
		since = time.Time{}
	}
	return Restore{Name: lock.Data[RestoreKey], Machine: lock.Data[MachineKey], Since: since}, nil
}

// BeginRestore lets a machine initialise a cluster again that was initialised
// before, for a restore; with no machine nobody does, until one is named. That
// no other machine of the control plane is left then is the caller's to know.
func BeginRestore(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, restore, machine string, now time.Time) error {
	data := map[string]string{RestoreKey: restore, SinceKey: now.UTC().Format(time.RFC3339)}
	if machine != "" {
		data[MachineKey] = machine
	}
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	switch {
	case apierrors.IsNotFound(err):
		if err := c.Create(ctx, newLock(cluster, data)); err != nil {
			return fmt.Errorf("creating init lock: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("reading init lock: %w", err)
	case former(lock, cluster):
		return formerError(lock)
	}
	lock.Data = data
	// Update carries the resource version, so whoever was quicker wins.
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("giving init lock for restore %s: %w", restore, err)
	}
	return nil
}

// EndRestore notes that the cluster is initialised and no restore goes on any
// more. It may be called again and again.
func EndRestore(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, restore string) error {
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	if err != nil {
		return fmt.Errorf("reading init lock: %w", err)
	}
	if former(lock, cluster) {
		return formerError(lock)
	}
	if lock.Data[RestoreKey] != restore {
		return nil
	}
	delete(lock.Data, RestoreKey)
	lock.Data[InitializedKey] = initializedValue
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("ending restore %s in init lock: %w", restore, err)
	}
	return nil
}
