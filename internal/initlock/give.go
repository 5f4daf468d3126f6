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

// SinceKey says when the lock was given to its machine.
const SinceKey = "since"

// ErrMoved says that the lock is not as it was observed.
var ErrMoved = errors.New("the init lock is not as it was observed")

// State is what a lock says.
type State struct {
	// Holder is the machine that it names; empty if none.
	Holder string
	// Since is when it was given to the holder; zero if that is not known.
	Since time.Time
	// Lost says that the lock has no owner; see Adopt.
	Lost bool
}

// Order is what a machine is told to do.
type Order string

const (
	// Wait for somebody to be told to initialise.
	Wait Order = "Wait"
	// Initialise the cluster.
	Initialise Order = "Initialise"
	// Join what is or will be initialised.
	Join Order = "Join"
)

// Observe reads the lock of a cluster. A lock that is not there, or that is a
// former Cluster's, names nobody.
func Observe(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (State, error) {
	lock, found, err := read(ctx, c, cluster)
	if err != nil || !found {
		return State{}, err
	}
	return stateOf(lock), nil
}

func stateOf(lock *corev1.ConfigMap) State {
	state := State{Holder: lock.Data[MachineKey], Lost: len(lock.OwnerReferences) == 0}
	if since, err := time.Parse(time.RFC3339, lock.Data[SinceKey]); err == nil {
		state.Since = since
	}
	return state
}

// read returns the lock, if there is one that is not a former Cluster's.
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

// Give gives the lock to a machine, if it still names from. It fails with
// ErrMoved if somebody else was quicker, or if the cluster was initialised
// meanwhile. Whether the former holder is out of the way is the caller's to
// know.
func Give(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, from, to string, now time.Time) error {
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	switch {
	case apierrors.IsNotFound(err):
		if from != "" || lost(cluster) {
			return ErrMoved
		}
		lock = newLock(cluster, map[string]string{MachineKey: to, SinceKey: now.UTC().Format(time.RFC3339)})
		if err := c.Create(ctx, lock); err != nil {
			return fmt.Errorf("creating init lock: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("reading init lock: %w", err)
	case former(lock, cluster):
		return formerError(lock)
	case lock.Data[InitializedKey] == initializedValue, lock.Data[MachineKey] != from:
		return ErrMoved
	}
	if lock.Data == nil {
		lock.Data = map[string]string{}
	}
	lock.Data[MachineKey], lock.Data[SinceKey] = to, now.UTC().Format(time.RFC3339)
	// Update carries the resource version, so whoever was quicker wins.
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("giving init lock to %s: %w", to, err)
	}
	return nil
}

// Told reports what a machine is to do that waits to be given the lock. It
// never takes it. A machine is told to join only beside a holder that stays:
// what was told once is told for good.
//
// c must read from the API server, not from a cache.
func Told(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster, machine string) (Order, error) {
	lock, found, err := read(ctx, c, cluster)
	switch {
	case err != nil:
		return Wait, err
	case !found && lost(cluster), found && lock.Data[InitializedKey] == initializedValue:
		return Join, nil
	case !found || lock.Data[MachineKey] == "":
		return Wait, nil
	case lock.Data[MachineKey] == machine:
		return Initialise, nil
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

// Reset notes that nothing is initialised any more: every machine of the
// control plane is gone. A lock that is not there says nothing, so it is made.
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
		// Nothing begins anew in a namespace that goes.
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

// lost reports whether a lock that is not there must have been lost: the
// Cluster was initialised.
func lost(cluster *clusterv1.Cluster) bool {
	return ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)
}
