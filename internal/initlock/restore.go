package initlock

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	lock, found, err := read(ctx, c, cluster)
	if err != nil || !found || lock.Data[RestoreKey] == "" {
		return Restore{}, err
	}
	state := stateOf(lock)
	return Restore{Name: lock.Data[RestoreKey], Machine: state.Holder, Since: state.Since}, nil
}

// BeginRestore lets a machine initialize an initialized cluster again, for a
// restore. If machine is empty, no machine initializes it until one is named.
// The caller must have made sure that no other control plane machine is left.
func BeginRestore(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, restore, machine string, now time.Time) error {
	data := map[string]string{RestoreKey: restore, SinceKey: now.UTC().Format(time.RFC3339)}
	if machine != "" {
		data[MachineKey] = machine
	}
	lock, err := load(ctx, c, cluster)
	if err != nil {
		return err
	}
	lock.Data = data
	return save(ctx, c, lock, "assigning init lock for restore "+restore)
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
