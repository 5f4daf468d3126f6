package scope

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// WorkloadClusters reads workload clusters and changes the objects of the control plane
// there.
type WorkloadClusters interface {
	Looker
	MemberKeeper
	Upgrader
	Housekeeper
	// Source sends an event when a workload cluster starts or stops to answer.
	Source(controller string, of handler.MapFunc) source.Source
	// Notify sends events to w when the state of a workload cluster changes.
	Notify(w clustercache.SourceWatcher[ctrl.Request], of func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request)
}

// Looker reads workload clusters.
type Looker interface {
	// Observe returns the state of the workload cluster. It does not wait for a
	// cluster that does not answer.
	Observe(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) facts.Cluster
	// Fresh returns the state without any cache. It may wait for a slow
	// workload cluster: it is called right before an action that cannot be
	// undone.
	Fresh(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) facts.Cluster
}

// MemberKeeper changes the members of etcd in workload clusters.
type MemberKeeper interface {
	// RemoveMember removes a member of etcd, with requests to the members on
	// the nodes.
	RemoveMember(ctx context.Context, cluster client.ObjectKey, nodes []facts.Node, id uint64) error
	// MoveLeader makes another voting member the leader. Only the leader can do
	// that, so node must be the leader's.
	MoveLeader(ctx context.Context, cluster client.ObjectKey, node string, to uint64) error
}

// Upgrader updates the stored version and settings of a workload cluster.
type Upgrader interface {
	// SetVersion prepares the workload cluster for machines of the desired
	// version: it writes kubeadm's stored configuration, which a joining
	// control plane machine uses, and the permissions that a newer kubeadm
	// requires.
	SetVersion(ctx context.Context, cluster client.ObjectKey, want kubeadm.Upgrade) error
	// SyncAddons updates kube-proxy and CoreDNS to the desired version, once
	// all machines have it. It returns its changes, for users.
	SyncAddons(ctx context.Context, cluster client.ObjectKey, want kubeadm.Upgrade) ([]string, error)
}

// Housekeeper makes other changes in workload clusters.
type Housekeeper interface {
	// MoveEndpoint moves the address that kube-vip holds from one node to
	// another, before the machine of the first one is deleted.
	MoveEndpoint(ctx context.Context, cluster client.ObjectKey, from, to string) error
	// DeleteNode deletes a node without a machine.
	DeleteNode(ctx context.Context, cluster client.ObjectKey, name string) error
	// CoreDNS lists the CoreDNS pods of the workload cluster.
	CoreDNS(ctx context.Context, cluster client.ObjectKey) ([]corev1.Pod, error)
	// Evict evicts a pod from its node as a drain does.
	Evict(ctx context.Context, cluster client.ObjectKey, pod *corev1.Pod) error
}
