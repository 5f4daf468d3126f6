package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// SetVersion implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) SetVersion(ctx context.Context, cluster client.ObjectKey, want kubeadm.Upgrade) error {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("reaching API server: %w", err)
	}
	return kubeadm.SetVersion(ctx, c, want)
}

// SyncAddons implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) SyncAddons(ctx context.Context, cluster client.ObjectKey, want kubeadm.Upgrade) ([]string, error) {
	mark, err := markOf(want)
	if err != nil {
		return nil, err
	}
	done := false
	t.withState(cluster, func(m *clusterState) { done = m.addons == mark && time.Since(m.addonsAt) < timelimits.LongGrace })
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

// MoveEndpoint implements the WorkloadClusters of controllers/controlplane. kube-vip has no command for it, so the lease
// is transferred to the other node: that node takes the address when it reads
// the lease the next time, within two seconds, and the first one releases it
// three seconds later, when it could not renew. In between both respond, and
// both announce the address: a connection that is open while it changes its node
// is reset.
func (t *Clusters) MoveEndpoint(ctx context.Context, cluster client.ObjectKey, from, to string) error {
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
	t.probes.Of(cluster).Moved(to, renewed.Time, now)
	return nil
}

// moveLease transfers the lease to another node, if the given node holds it.
func moveLease(ctx context.Context, c client.Client, from, to string, now metav1.MicroTime) (given bool, err error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: probe.KubeVIPLease}, lease); err != nil {
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

// CoreDNS implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) CoreDNS(ctx context.Context, cluster client.ObjectKey) ([]corev1.Pod, error) {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"k8s-app": "kube-dns"}); err != nil {
		return nil, fmt.Errorf("listing CoreDNS pods: %w", err)
	}
	return pods.Items, nil
}

// Evict implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) Evict(ctx context.Context, cluster client.ObjectKey, pod *corev1.Pod) error {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("reaching API server: %w", err)
	}
	if err := c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}); err != nil {
		return fmt.Errorf("evicting pod %s: %w", pod.Name, err)
	}
	return nil
}

// DeleteNode implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) DeleteNode(ctx context.Context, cluster client.ObjectKey, name string) error {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("reaching API server: %w", err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}
