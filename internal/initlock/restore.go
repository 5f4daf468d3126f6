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

// RestoreKey names the NovaEtcdRestore that is in progress. While it is set, the
// machine that holds the lock initializes the cluster again, with the data of
// the snapshot.
const RestoreKey = "restore"

// Restore is a restore that is recorded in a lock.
type Restore struct {
	// Name is the name of the NovaEtcdRestore, or empty.
	Name string
	// Machine is the machine that restores, or empty until it was chosen.
	Machine string
	// Since is when name or machine last changed.
	Since time.Time
}

// ObserveRestore returns the restore that is in progress.
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

// BeginRestore lets a machine initialize an initialized cluster again, for a
// restore. If machine is empty, no machine initializes it until one is named.
// The caller must have made sure that no other control plane machine is left.
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
	// Update carries the resource version, so the first writer wins.
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("assigning init lock for restore %s: %w", restore, err)
	}
	return nil
}

// EndRestore records that the cluster is initialized and that the restore has
// ended. It is idempotent.
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
