package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
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
	Notify(w Watcher, of func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request)
}

// Looker reads workload clusters.
type Looker interface {
	// Observe returns the state of the workload cluster. It does not wait for a
	// cluster that does not answer.
	Observe(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) Facts
	// Fresh returns the state without any cache. It may wait for a slow
	// workload cluster: it is called right before an action that cannot be
	// undone.
	Fresh(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) Facts
}

// MemberKeeper changes the members of etcd in workload clusters.
type MemberKeeper interface {
	// RemoveMember removes a member of etcd, with requests to the members on
	// the nodes.
	RemoveMember(ctx context.Context, cluster client.ObjectKey, nodes []Node, id uint64) error
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

// Watcher is the part of a controller that adds sources.
type Watcher interface {
	Watch(src source.TypedSource[reconcile.Request]) error
}

// Facts are the observed state of a workload cluster.
type Facts struct {
	// Answers is true if the API server answers.
	Answers bool
	// Alive is true if the API server answers from etcd, even if its objects
	// cannot be read at the moment.
	Alive bool
	// Problem is why it does not answer, for users.
	Problem string
	// UnreachableSince is when this process first observed it to be unreachable;
	// zero if it answers.
	UnreachableSince time.Time
	// Pending is true while it was not probed yet, as after a start of this
	// process. A missing answer is then no failure.
	Pending bool
	// KubeadmConfig is true once kubeadm has stored its configuration, that is
	// after the control plane was initialized.
	KubeadmConfig bool
	// KubeadmVersion is the version in kubeadm's stored configuration; empty if
	// unknown.
	KubeadmVersion string
	// KubeadmStored is kubeadm's stored ClusterConfiguration; empty if unknown.
	KubeadmStored kubeadm.Document
	// ExternalEtcd is true if the stored configuration has an external etcd.
	ExternalEtcd bool
	// OldestKubelet is the lowest version of a worker's kubelet; empty if there
	// are no workers.
	OldestKubelet string
	// Nodes are all nodes.
	Nodes []Node
	// Serving are the machines whose API server reported at its own address
	// that it is ready; empty if they were not probed, or none could be
	// reached.
	Serving sets.Set[string]
	// Failing are the machines whose API server was not ready at that time: it
	// responded with an error, or the host refused the connection.
	Failing sets.Set[string]
	// Endpoint is the state of the API server's endpoint.
	Endpoint Endpoint
	// Etcd is nil if etcd could not be queried.
	Etcd *etcd.Health
	// MemberSince is when each member of etcd was first observed.
	MemberSince map[uint64]time.Time
	// EtcdProblem is why etcd could not be queried, for users.
	EtcdProblem string
	// Again is when to reconcile again, if no event will follow; 0 means never.
	Again time.Duration
}

// Endpoint is the state of the API server's endpoint.
type Endpoint struct {
	// Probed is true once the endpoint was probed.
	Probed bool
	// Answers is true if an API server answers there.
	Answers bool
	// Problem is why no API server answers there, for users.
	Problem string
	// Holder is the node that holds the address by kube-vip's lease; empty if
	// there is none or if kube-vip is not used.
	Holder string
	// Confirmed is true once the holder has taken the address and the previous
	// one has released it.
	Confirmed bool
	// Unconfirmed is true if the holder has not renewed the lease for so long that
	// it seems not to take the address.
	Unconfirmed bool
	// Before is the previous holder of the address; empty if unknown.
	Before string
}

// Node is a node of a workload cluster.
type Node struct {
	Name         string
	ProviderID   string
	ControlPlane bool
	Ready        bool
	// Unreachable is true if the kubelet has not reported for a while: the
	// status of its pods may be old.
	Unreachable bool
	// Schedulable is true if a pod that tolerates control planes may be
	// scheduled there.
	Schedulable bool
	// Machine is its machine by Cluster API's annotation; empty without the
	// annotation.
	Machine string
	// Address is the node's own address.
	Address string
	// Kubelet is the kubelet's version.
	Kubelet string
	// APIServer is the version of the API server there; empty if there is none
	// or if it is unknown.
	APIServer string
	// APIServerPort is the port of that API server.
	APIServerPort string
	// Components are the static pods there.
	Components Components
	// CertificatesExpire is when the API server's certificate there expires;
	// zero if unknown.
	CertificatesExpire time.Time
}

// nodeOf returns the node of a machine, or nil.
func nodeOf(machine *clusterv1.Machine, nodes []Node) *Node {
	for i, node := range nodes {
		switch {
		case machine.Status.NodeRef.IsDefined():
			if machine.Status.NodeRef.Name == node.Name {
				return &nodes[i]
			}
		case machine.Spec.ProviderID != "":
			if machine.Spec.ProviderID == node.ProviderID {
				return &nodes[i]
			}
		case machine.Name == node.Name:
			return &nodes[i]
		}
	}
	return nil
}

// controlPlaneNodes returns the names of the control plane's nodes.
func controlPlaneNodes(nodes []Node) []string {
	var found []string
	for _, node := range nodes {
		if node.ControlPlane {
			found = append(found, node.Name)
		}
	}
	return found
}

const (
	roleControlPlane = "node-role.kubernetes.io/control-plane"
	apiServerName    = "kube-apiserver"
	componentLabel   = "component"
	etcdName         = "etcd"
	kubeVIPName      = "kube-vip"
	tierLabel        = "tier"
	tierControlPlane = "control-plane"
)

// newNodes combines the observations of each node.
func newNodes(nodes []corev1.Node, pods []corev1.Pod, now time.Time) []Node {
	byNode := map[string][]*corev1.Pod{}
	for i := range pods {
		byNode[pods[i].Spec.NodeName] = append(byNode[pods[i].Spec.NodeName], &pods[i])
	}
	found := make([]Node, 0, len(nodes))
	for i := range nodes {
		_, controlPlane := nodes[i].Labels[roleControlPlane]
		node := Node{
			Name:         nodes[i].Name,
			ProviderID:   nodes[i].Spec.ProviderID,
			ControlPlane: controlPlane,
			Ready:        nodeReady(&nodes[i]),
			Unreachable:  nodeUnreachable(&nodes[i]),
			Schedulable:  schedulable(&nodes[i]),
			Machine:      nodes[i].Annotations[clusterv1.MachineAnnotation],
			Address:      internalAddress(&nodes[i]),
			Kubelet:      nodes[i].Status.NodeInfo.KubeletVersion,
		}
		for _, pod := range byNode[node.Name] {
			node.Components.observe(pod, now)
			if pod.Labels[componentLabel] == apiServerName && len(pod.Spec.Containers) > 0 {
				node.APIServer = kubeadm.ImageVersion(pod.Spec.Containers[0].Image)
				node.APIServerPort = securePort(&pod.Spec.Containers[0])
			}
		}
		found = append(found, node)
	}
	return found
}

// oldestKubelet returns the lowest version of a worker's kubelet.
func oldestKubelet(nodes []Node) string {
	oldest := ""
	for _, node := range nodes {
		if !node.ControlPlane && node.Kubelet != "" && (oldest == "" || kubeadm.Newer(oldest, node.Kubelet)) {
			oldest = node.Kubelet
		}
	}
	return oldest
}

func internalAddress(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// nodeUnreachable reports whether the node controller has lost contact to the
// kubelet.
func nodeUnreachable(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// securePort returns the port of an API server from its command.
func securePort(container *corev1.Container) string {
	for _, arg := range slices.Concat(container.Command, container.Args) {
		if port, ok := strings.CutPrefix(arg, "--secure-port="); ok {
			return port
		}
	}
	return "6443"
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func schedulable(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key != roleControlPlane && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	return !node.Spec.Unschedulable
}

// fingerprint changes whenever etcd may have changed.
func fingerprint(machines []*clusterv1.Machine, nodes []Node, pods []corev1.Pod) string {
	var b strings.Builder
	for _, m := range machines {
		fmt.Fprintf(&b, "m:%s ", m.Name)
	}
	for _, n := range nodes {
		if n.ControlPlane {
			fmt.Fprintf(&b, "n:%s=%t ", n.Name, n.Ready)
		}
	}
	for i := range pods {
		if pods[i].Labels[componentLabel] != etcdName {
			continue
		}
		fmt.Fprintf(&b, "p:%s=%s", pods[i].Name, pods[i].UID)
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady {
				fmt.Fprintf(&b, "/%s ", c.Status)
			}
		}
	}
	return b.String()
}
