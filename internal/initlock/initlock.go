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
	// MachineKey names the machine that initializes the cluster.
	MachineKey = "machine"
	// InitializedKey is "true" once the cluster was initialized.
	InitializedKey = "initialized"

	initializedValue = "true"
	clusterKind      = "Cluster"
)

// Key returns the namespace and name of the lock of a cluster.
func Key(cluster client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-lock"}
}

// Acquire reports whether machine is the one that initializes the cluster.
// The first caller holds the lock. Another machine gets it only if the holder's
// Machine does not exist and the cluster was not initialized.
//
// c must read Machines from the API server: a cache that does not contain the
// holder yet does not prove that it was deleted. A conflict is returned as an
// error, because the other writer need not be a machine: a caller that joined
// after a conflict could wait for an initialization that never happens.
func Acquire(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (held bool, err error) {
	if done := cluster.Status.Initialization.ControlPlaneInitialized; done != nil && *done {
		// This holds for a lost lock too: a second kubeadm init would create a
		// second cluster.
		return false, nil
	}
	lock, err := load(ctx, c, cluster)
	if err != nil || lock.Data[InitializedKey] == initializedValue {
		return false, err
	}
	if lock.Data[MachineKey] == machine.Name {
		return true, nil
	}
	if gone, err := holderGone(ctx, c, lock); err != nil || !gone {
		return false, err
	}
	// The lock may be outdated if the manager was down when the cluster was
	// initialized.
	done, err := joined(ctx, c, client.ObjectKeyFromObject(cluster), lock.Data[MachineKey], machine.Name)
	if err != nil || done {
		return false, err
	}
	lock.Data[MachineKey] = machine.Name
	err = save(ctx, c, lock, "taking init lock over")
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// MarkInitialized records that the cluster was initialized. After that no
// machine acquires the lock. It is idempotent.
func MarkInitialized(ctx context.Context, c client.Client, cluster *clusterv1.Cluster) error {
	lock, err := load(ctx, c, cluster)
	if err != nil || initialized(lock) {
		// A restore implies it too, and the machine that the restore names has
		// yet to initialize.
		return err
	}
	lock.Data[InitializedKey] = initializedValue
	return save(ctx, c, lock, "marking init lock")
}

// Initialized reports whether the cluster was initialized: MarkInitialized was
// called for it, it is being restored, or a machine other than the holder of
// the lock is one of its nodes.
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
		// Without a holder, any node may be the one that runs kubeadm init.
		return false, nil
	}
	return joined(ctx, c, cluster, lock.Data[MachineKey])
}

// initialized reports whether the lock records that the cluster was
// initialized. Only an initialized cluster is restored.
func initialized(lock *corev1.ConfigMap) bool {
	return lock.Data[InitializedKey] == initializedValue || lock.Data[RestoreKey] != ""
}

// former reports whether the lock belongs to a deleted Cluster of the same name.
// The garbage collector deletes it shortly after that Cluster.
func former(lock *corev1.ConfigMap, cluster *clusterv1.Cluster) bool {
	return cluster.UID != "" && slices.ContainsFunc(lock.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == clusterKind && ref.UID != cluster.UID
	})
}

func formerError(lock *corev1.ConfigMap) error {
	return fmt.Errorf("reading init lock: ConfigMap %s still belongs to a deleted Cluster of the same name", lock.Name)
}

// joined reports whether a control plane machine that is not in beside is a
// node. The machine that initializes the cluster may be a node before kubeadm
// init completes; any other machine can only join an initialized cluster.
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

// load returns the lock, or a new one without data if there is none. It fails
// if the lock belongs to a deleted Cluster of the same name.
func load(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (*corev1.ConfigMap, error) {
	lock := &corev1.ConfigMap{}
	err := c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	switch {
	case apierrors.IsNotFound(err):
		return newLock(cluster, map[string]string{}), nil
	case err != nil:
		return nil, fmt.Errorf("reading init lock: %w", err)
	case former(lock, cluster):
		return nil, formerError(lock)
	}
	if lock.Data == nil {
		lock.Data = map[string]string{}
	}
	return lock, nil
}

// exists reports whether a lock was read.
func exists(lock *corev1.ConfigMap) bool { return lock.ResourceVersion != "" }

// save writes a lock of load. An update carries the resource version, so the
// first writer wins.
func save(ctx context.Context, c client.Client, lock *corev1.ConfigMap, doing string) error {
	if !exists(lock) {
		if err := c.Create(ctx, lock); err != nil {
			return fmt.Errorf("creating init lock: %w", err)
		}
		return nil
	}
	if err := c.Update(ctx, lock); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
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

// Adopt makes the Cluster the owner of a lock without an owner, as backups
// restore it. If the lock does not exist, Adopt does nothing.
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
