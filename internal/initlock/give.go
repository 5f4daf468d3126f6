package initlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SinceKey is the time when the lock was assigned to its machine.
const SinceKey = "since"

// ErrMoved reports that the lock changed after it was observed.
var ErrMoved = errors.New("the init lock is not as it was observed")

// State is the content of a lock.
type State struct {
	// Holder is the name of the machine that holds the lock, or empty.
	Holder string
	// Since is when the lock was assigned to the holder, or zero if unknown.
	Since time.Time
	// Lost is true if the lock has no owner; see Adopt.
	Lost bool
}

// Order is how a machine becomes a member of the control plane.
type Order string

const (
	// Wait until a machine is chosen to initialize the cluster.
	Wait Order = "Wait"
	// Initialize the cluster.
	Initialize Order = "Initialize"
	// Join the cluster that is or will be initialized.
	Join Order = "Join"
)

// Observe reads the lock of a cluster. A lock that does not exist, or that
// belongs to a deleted Cluster of the same name, has no holder.
func Observe(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (State, error) {
	lock, found, err := read(ctx, c, cluster)
	if err != nil || !found {
		return State{}, err
	}
	return stateOf(lock), nil
}

func stateOf(lock *corev1.ConfigMap) State {
	since, _ := time.Parse(time.RFC3339, lock.Data[SinceKey])
	return State{Holder: lock.Data[MachineKey], Since: since, Lost: len(lock.OwnerReferences) == 0}
}

// read returns the lock unless it belongs to a deleted Cluster of the same name.
func read(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (_ *corev1.ConfigMap, found bool, _ error) {
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	if apierrors.IsNotFound(err) || err == nil && former(lock, cluster) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading init lock: %w", err)
	}
	return lock, true, nil
}

// Assign assigns the lock to the machine "to" if "from" still holds it. It
// fails with ErrMoved if the lock was assigned to another machine or if the
// cluster was initialized in the meantime. The caller must have made sure that
// the previous holder can no longer initialize the cluster.
func Assign(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, from, to string, now time.Time) error {
	lock, err := load(ctx, c, cluster)
	switch {
	case err != nil:
		return err
	case !exists(lock) && lost(cluster), lock.Data[InitializedKey] == initializedValue, lock.Data[MachineKey] != from:
		return ErrMoved
	}
	lock.Data[MachineKey], lock.Data[SinceKey] = to, now.UTC().Format(time.RFC3339)
	return save(ctx, c, lock, "assigning init lock to "+to)
}

// OrderFor returns the order for a machine that does not hold the lock yet. It
// does not change the lock. The order to join requires a holder that is not
// being deleted, because bootstrap data that was rendered is never changed.
//
// c must read from the API server, not from a cache.
func OrderFor(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster, machine string) (Order, error) {
	lock, found, err := read(ctx, c, cluster)
	switch {
	case err != nil:
		return Wait, err
	case !found && lost(cluster), found && lock.Data[InitializedKey] == initializedValue:
		return Join, nil
	case !found || lock.Data[MachineKey] == "":
		return Wait, nil
	case lock.Data[MachineKey] == machine:
		return Initialize, nil
	}
	holder := &clusterv1.Machine{}
	err = c.Get(ctx, client.ObjectKey{Namespace: lock.Namespace, Name: lock.Data[MachineKey]}, holder)
	if client.IgnoreNotFound(err) != nil {
		return Wait, fmt.Errorf("reading holder of init lock: %w", err)
	}
	if err == nil && holder.DeletionTimestamp.IsZero() {
		return Join, nil
	}
	done, err := joined(ctx, c, client.ObjectKeyFromObject(cluster), lock.Data[MachineKey], machine)
	if err != nil || !done {
		return Wait, err
	}
	return Join, nil
}

// Reset records that the cluster is no longer initialized, because all control
// plane machines were deleted. If the lock does not exist, Reset creates it:
// a missing lock of an initialized cluster would be treated as lost.
func Reset(ctx context.Context, c client.Client, cluster *clusterv1.Cluster) error {
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	switch {
	case apierrors.IsNotFound(err):
		if !lost(cluster) {
			return nil
		}
		err := c.Create(ctx, newLock(cluster, nil))
		if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating init lock: %w", err)
		}
		// No control plane is created in a namespace that is being deleted.
		return nil
	case err != nil:
		return fmt.Errorf("reading init lock: %w", err)
	case former(lock, cluster), len(lock.Data) == 0:
		return nil
	}
	lock.Data = nil
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("resetting init lock: %w", err)
	}
	return nil
}

// lost reports whether a lock that does not exist must have been lost, because
// the Cluster was initialized.
func lost(cluster *clusterv1.Cluster) bool {
	return ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)
}
