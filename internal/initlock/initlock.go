package initlock

import (
	"context"
	"fmt"

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
// cache does not know yet must not be taken for gone. A conflict is returned
// as not held; the caller asks again when the lock changes.
func Acquire(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (held bool, err error) {
	if done := cluster.Status.Initialization.ControlPlaneInitialized; done != nil && *done {
		// Also when the lock was lost: a second init would be a second cluster.
		return false, nil
	}
	lock := &corev1.ConfigMap{}
	err = c.Get(ctx, Key(client.ObjectKeyFromObject(cluster)), lock)
	if apierrors.IsNotFound(err) {
		return create(ctx, c, cluster, machine.Name)
	}
	if err != nil {
		return false, fmt.Errorf("reading init lock: %w", err)
	}
	if lock.Data[InitializedKey] == initializedValue {
		return false, nil
	}
	if lock.Data[MachineKey] == machine.Name {
		return true, nil
	}
	gone, err := holderGone(ctx, c, lock)
	if err != nil || !gone {
		return false, err
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
	if lock.Data[InitializedKey] == initializedValue {
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

// Initialized reports whether MarkInitialized was called for the cluster.
func Initialized(ctx context.Context, c client.Reader, cluster client.ObjectKey) (bool, error) {
	lock := &corev1.ConfigMap{}
	if err := c.Get(ctx, Key(cluster), lock); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading init lock: %w", err)
	}
	return lock.Data[InitializedKey] == initializedValue, nil
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
	err := c.Update(ctx, lock)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
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
			Namespace: key.Namespace,
			Name:      key.Name,
			Labels:    map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(),
				Kind:       "Cluster",
				Name:       cluster.Name,
				UID:        cluster.UID,
			}},
		},
		Data: data,
	}
}
