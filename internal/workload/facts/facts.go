package facts

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// Cluster is the observed state of a workload cluster.
type Cluster struct {
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
	// Authorities is the ID of the CAs that the node trusts; empty if they were never
	// rotated.
	Authorities string
	// CertificatesExpire is when the API server's certificate there expires;
	// zero if unknown.
	CertificatesExpire time.Time
}

// NodeOf returns the node of a machine, or nil.
func NodeOf(machine *clusterv1.Machine, nodes []Node) *Node {
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

// ControlPlaneNodes returns the names of the control plane's nodes.
func ControlPlaneNodes(nodes []Node) []string {
	var found []string
	for _, node := range nodes {
		if node.ControlPlane {
			found = append(found, node.Name)
		}
	}
	return found
}

// Labels of control plane nodes and static pods, and names of components.
const (
	RoleControlPlane = "node-role.kubernetes.io/control-plane"
	APIServerName    = "kube-apiserver"
	ComponentLabel   = "component"
	EtcdName         = "etcd"
	KubeVIPName      = "kube-vip"
	TierLabel        = "tier"
	TierControlPlane = "control-plane"
)
