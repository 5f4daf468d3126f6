package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// addonsFresh is how long kube-proxy and CoreDNS count as synced. A user may
// downgrade them.
const addonsFresh = 10 * time.Minute

// SetVersion implements WorkloadClusters.
func (t *workloadClusters) SetVersion(ctx context.Context, cluster client.ObjectKey, want kubeadm.Upgrade) error {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("reaching API server: %w", err)
	}
	return kubeadm.SetVersion(ctx, c, want)
}

// SyncAddons implements WorkloadClusters.
func (t *workloadClusters) SyncAddons(ctx context.Context, cluster client.ObjectKey, want kubeadm.Upgrade) ([]string, error) {
	mark, err := markOf(want)
	if err != nil {
		return nil, err
	}
	done := false
	t.withState(cluster, func(m *clusterState) { done = m.addons == mark && time.Since(m.addonsAt) < addonsFresh })
	if done {
		return nil, nil
	}
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	changed, err := kubeadm.SyncAddons(ctx, c, want)
	if err != nil {
		return changed, err
	}
	t.withState(cluster, func(m *clusterState) { m.addons, m.addonsAt = mark, time.Now() })
	return changed, nil
}

// markOf returns a hash of an upgrade.
func markOf(want kubeadm.Upgrade) (string, error) {
	encoded, err := json.Marshal(want)
	if err != nil {
		return "", fmt.Errorf("encoding upgrade: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), nil
}

// MoveEndpoint implements WorkloadClusters. kube-vip has no command for it, so the lease
// is transferred to the other node: that node takes the address when it reads
// the lease the next time, within two seconds, and the first one releases it
// three seconds later, when it could not renew. In between both answer, so no
// request fails.
func (t *workloadClusters) MoveEndpoint(ctx context.Context, cluster client.ObjectKey, from, to string) error {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("reaching API server: %w", err)
	}
	now := time.Now()
	// The times of a lease are in microseconds.
	renewed := metav1.NewMicroTime(now.Truncate(time.Microsecond))
	given, err := moveLease(ctx, c, from, to, renewed)
	if err != nil || !given {
		return err
	}
	t.probes.of(cluster).moved(to, renewed.Time, now)
	return nil
}

// moveLease transfers the lease to another node, if the given node holds it.
func moveLease(ctx context.Context, c client.Client, from, to string, now metav1.MicroTime) (given bool, err error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeVIPLease}, lease); err != nil {
		return false, fmt.Errorf("reading kube-vip's lease: %w", err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != from {
		return false, nil
	}
	lease.Spec.HolderIdentity = &to
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	// If the holder renews at the same moment this fails with a conflict, and
	// is tried again.
	if err := c.Update(ctx, lease); err != nil {
		return false, fmt.Errorf("transferring kube-vip's lease to %s: %w", to, err)
	}
	return true, nil
}
