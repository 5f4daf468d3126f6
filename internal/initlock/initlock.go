package initlock

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// MachineKey names the machine that initialises the cluster.
	MachineKey = "machine"
	// InitializedKey is "true" once the cluster was initialised.
	InitializedKey = "initialized"

	initializedValue = "true"
	clusterKind      = "Cluster"
)

// Key returns where the lock of a cluster lies.
func Key(cluster client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-lock"}
}

// Acquire reports whether machine is the one that initialises the cluster.
// The first to ask takes the lock; it passes on only when its holder's
// Machine is gone and the cluster was not initialised.
//
// c must read Machines from the API server, not from a cache: a holder that a
// cache does not know yet must not be taken for gone. A conflict is an error:
// what changed the lock need not be another machine, and a caller that settled
// for joining then would wait for an init that nobody does.
func Acquire(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (held bool, err error) {
	if done := cluster.Status.Initialization.ControlPlaneInitialized; done != nil && *done {
		// Also when the lock was lost: a second init would be a second cluster.
		return false, nil
	}
	lock := &corev1.ConfigMap{}
	err = c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return false, fmt.Errorf("reading init lock: %w", err)
	}
	if former(lock, cluster) {
		return false, formerError(lock)
	}
	if lock.Data[InitializedKey] == initializedValue {
		return false, nil
	}
	if lock.Data[MachineKey] == machine.Name {
		return true, nil
	}
	if !absent {
		if gone, err := holderGone(ctx, c, lock); err != nil || !gone {
			return false, err
		}
	}
	// The lock may say less than what is: whoever marks it may have been away.
	done, err := joined(ctx, c, client.ObjectKeyFromObject(cluster), lock.Data[MachineKey], machine.Name)
	if err != nil || done {
		return false, err
	}
	if absent {
		return create(ctx, c, cluster, machine.Name)
	}
	return takeOver(ctx, c, lock, machine.Name)
}

// MarkInitialized notes that the cluster was initialised. From then on no
// machine ever holds the lock. It may be called again and again.
func MarkInitialized(ctx context.Context, c client.Client, cluster *clusterv1.Cluster) error {
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	if apierrors.IsNotFound(err) {
		lock = newLock(cluster, map[string]string{InitializedKey: initializedValue})
		if err := c.Create(ctx, lock); err != nil {
			return fmt.Errorf("creating init lock: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading init lock: %w", err)
	}
	if former(lock, cluster) {
		return formerError(lock)
	}
	if initialized(lock) {
		// A restore says it as well, and the machine that it names is still to be
		// told to initialise.
		return nil
	}
	if lock.Data == nil {
		lock.Data = map[string]string{}
	}
	lock.Data[InitializedKey] = initializedValue
	// Update carries the resource version, so a lock that passed on in
	// between is not written over.
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("marking init lock: %w", err)
	}
	return nil
}

// Initialized reports whether the cluster was initialised: MarkInitialized was
// called for it, it is being restored, or a machine that did not initialise it
// is a node of it.
func Initialized(ctx context.Context, c client.Reader, cluster client.ObjectKey) (bool, error) {
	lock := &corev1.ConfigMap{}
	if err := c.Get(ctx, Key(cluster), lock); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading init lock: %w", err)
	}
	owner := &clusterv1.Cluster{}
	if err := c.Get(ctx, cluster, owner); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Cluster of init lock: %w", err)
	}
	if former(lock, owner) {
		return false, nil
	}
	if initialized(lock) {
		return true, nil
	}
	if lock.Data[MachineKey] == "" {
		// Who did not initialise it is not known.
		return false, nil
	}
	return joined(ctx, c, cluster, lock.Data[MachineKey])
}

// initialized reports whether lock says that the cluster was initialised. Only
// one that was is restored.
func initialized(lock *corev1.ConfigMap) bool {
	return lock.Data[InitializedKey] == initializedValue || lock.Data[RestoreKey] != ""
}

// former reports whether lock is that of a Cluster of the same name that was
// deleted. The garbage collector takes it away, a little later.
func former(lock *corev1.ConfigMap, cluster *clusterv1.Cluster) bool {
	return cluster.UID != "" && slices.ContainsFunc(lock.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == clusterKind && ref.UID != cluster.UID
	})
}

func formerError(lock *corev1.ConfigMap) error {
	return fmt.Errorf("reading init lock: ConfigMap %s still is that of a former Cluster of the same name", lock.Name)
}

// joined reports whether a control plane machine beside those named is a node.
// The one that initialises may be a node before it is through; any other can
// only join what was initialised.
func joined(ctx context.Context, c client.Reader, cluster client.ObjectKey, beside ...string) (bool, error) {
	machines := &clusterv1.MachineList{}
	if err := c.List(ctx, machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return false, fmt.Errorf("listing control plane machines: %w", err)
	}
	return slices.ContainsFunc(machines.Items, func(m clusterv1.Machine) bool {
		return m.Status.NodeRef.IsDefined() && m.DeletionTimestamp.IsZero() && !slices.Contains(beside, m.Name)
	}), nil
}

func create(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, machine string) (bool, error) {
	err := c.Create(ctx, newLock(cluster, map[string]string{MachineKey: machine}))
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("creating init lock: %w", err)
	}
	return true, nil
}

func takeOver(ctx context.Context, c client.Client, lock *corev1.ConfigMap, machine string) (bool, error) {
	if lock.Data == nil {
		lock.Data = map[string]string{}
	}
	lock.Data[MachineKey] = machine
	if err := c.Update(ctx, lock); err != nil {
		return false, fmt.Errorf("taking init lock over: %w", err)
	}
	return true, nil
}

func holderGone(ctx context.Context, c client.Reader, lock *corev1.ConfigMap) (bool, error) {
	holder := lock.Data[MachineKey]
	if holder == "" {
		return true, nil
	}
	machine := &clusterv1.Machine{}
	err := c.Get(ctx, client.ObjectKey{Namespace: lock.Namespace, Name: holder}, machine)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading holder of init lock: %w", err)
	}
	return false, nil
}

func newLock(cluster *clusterv1.Cluster, data map[string]string) *corev1.ConfigMap {
	key := Key(client.ObjectKeyFromObject(cluster))
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       key.Namespace,
			Name:            key.Name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
			OwnerReferences: ownedBy(cluster),
		},
		Data: data,
	}
}

func ownedBy(cluster *clusterv1.Cluster) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(),
		Kind:       clusterKind,
		Name:       cluster.Name,
		UID:        cluster.UID,
	}}
}

// Adopt gives a lock that has no owner any more, as backups restore it, to its
// Cluster. One that is not there is fine.
func Adopt(ctx context.Context, c client.Client, cluster *clusterv1.Cluster) error {
	lock, found, err := read(ctx, c, cluster)
	if err != nil || !found || len(lock.OwnerReferences) > 0 {
		return err
	}
	lock.OwnerReferences = ownedBy(cluster)
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("updating init lock: %w", err)
	}
	return nil
}
