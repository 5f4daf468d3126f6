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
)

// Tenants looks into tenant clusters and changes what belongs to the control
// plane there.
type Tenants interface {
	Looker
	MemberKeeper
	Upgrader
	Housekeeper
	// Source tells when a tenant begins or ceases to answer.
	Source(controller string, of handler.MapFunc) source.Source
	// Notify tells w when something changed inside a tenant.
	Notify(w Watcher, of func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request)
}

// Looker looks into tenants.
type Looker interface {
	// Observe reports what the tenant says of itself. It waits for no tenant
	// that does not answer.
	Observe(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) Facts
	// Fresh reports the same past everything that is kept in memory. It may
	// wait for a tenant that is slow: ask it right before something that
	// cannot be taken back.
	Fresh(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) Facts
}

// MemberKeeper changes the members of tenants' etcd.
type MemberKeeper interface {
	// RemoveMember removes a member of the tenant's etcd, through those on the
	// nodes.
	RemoveMember(ctx context.Context, cluster client.ObjectKey, nodes []Node, id uint64) error
	// MoveLeader makes another voting member of the tenant's etcd the leader.
	// Only the leader can do that, so node must be the leader's.
	MoveLeader(ctx context.Context, cluster client.ObjectKey, node string, to uint64) error
}

// Upgrader moves what a tenant keeps of its version and settings.
type Upgrader interface {
	// SetVersion makes the tenant ready for machines of the wanted version: it
	// writes kubeadm's stored configuration, which a joining control plane
	// takes, and the permissions that a newer kubeadm counts on.
	SetVersion(ctx context.Context, cluster client.ObjectKey, want Upgrade) error
	// SyncAddons moves kube-proxy and CoreDNS to the wanted version, once all
	// machines have it. It returns what it changed, for people.
	SyncAddons(ctx context.Context, cluster client.ObjectKey, want Upgrade) ([]string, error)
}

// Housekeeper does what else has to be done in tenants.
type Housekeeper interface {
	// MoveEndpoint hands the address that kube-vip holds from one node to
	// another, before the first one goes.
	MoveEndpoint(ctx context.Context, cluster client.ObjectKey, from, to string) error
	// DeleteNode deletes a node whose machine is gone.
	DeleteNode(ctx context.Context, cluster client.ObjectKey, name string) error
	// CoreDNS lists the tenant's CoreDNS pods.
	CoreDNS(ctx context.Context, cluster client.ObjectKey) ([]corev1.Pod, error)
	// Evict takes a pod from its node as a drain does.
	Evict(ctx context.Context, cluster client.ObjectKey, pod *corev1.Pod) error
}

// Watcher is the part of a controller that takes sources.
type Watcher interface {
	Watch(src source.TypedSource[reconcile.Request]) error
}

// Facts are what a tenant said of itself.
type Facts struct {
	// Answers is true if the API server answers.
	Answers bool
	// Alive is true if the API server answers from etcd, also where what it
	// holds cannot be read for now.
	Alive bool
	// Silence is why it does not answer, for people.
	Silence string
	// SilentSince is when it was first seen to be silent by this process; zero if
	// it is not silent.
	SilentSince time.Time
	// Early is true while nobody has asked yet, as after a start of this
	// process. The silence means nothing then.
	Early bool
	// KubeadmConfig is true once kubeadm has stored its configuration, that
	// is once the control plane was initialised.
	KubeadmConfig bool
	// KubeadmVersion is the version in kubeadm's stored configuration; empty if
	// it is not known.
	KubeadmVersion string
	// KubeadmStored is kubeadm's stored ClusterConfiguration; empty if it is
	// not known.
	KubeadmStored storedDocument
	// ExternalEtcd is true if that says that etcd runs elsewhere.
	ExternalEtcd bool
	// OldestKubelet is the lowest version of a worker's kubelet; empty if there
	// is none.
	OldestKubelet string
	// Nodes are all nodes.
	Nodes []Node
	// Serving are the machines whose API server answered at its own address that
	// it is ready; empty if they were not asked, or none could be reached.
	Serving sets.Set[string]
	// Failing are the machines whose API server was not ready at that time: it
	// responded with an error, or the host refused the connection.
	Failing sets.Set[string]
	// Endpoint is what is known of the address that the API server is reached
	// at.
	Endpoint Endpoint
	// Etcd is nil if etcd could not be asked.
	Etcd *etcd.Health
	// MemberSince is when each member of etcd was first seen.
	MemberSince map[uint64]time.Time
	// EtcdSilence is why it could not be asked, for people.
	EtcdSilence string
	// Again is when to look again, because nobody will tell; 0 means never.
	Again time.Duration
}

// Endpoint is what is known of the address that the API server is reached at.
type Endpoint struct {
	// Asked is true once somebody asked there.
	Asked bool
	// Answers is true if an API server answers there.
	Answers bool
	// Silence is why none does, for people.
	Silence string
	// Holder is the node that kube-vip says holds the address; empty if nobody
	// does or something else carries it.
	Holder string
	// Settled is true once the holder has really taken the address and the one
	// before it has let go.
	Settled bool
	// Unheard is true if the holder has not been heard of for so long that it
	// seems not to take the address.
	Unheard bool
	// Before is the node that held the address before; empty if that is not
	// known.
	Before string
}

// Upgrade is what a tenant is moved to.
type Upgrade struct {
	// Version is the Kubernetes version.
	Version string
	// Configuration is the ClusterConfiguration that kubeadm init would be
	// given now, in YAML.
	Configuration []byte
	// KubeProxy is the KubeProxyConfiguration that kubeadm init would be given
	// now, in YAML.
	KubeProxy []byte
	// ImageRepository is where the images of kube-proxy and CoreDNS come from.
	ImageRepository string
	// SkipKubeProxy and SkipCoreDNS leave each to somebody else.
	SkipKubeProxy, SkipCoreDNS bool
}

// Node is a node of a tenant.
type Node struct {
	Name         string
	ProviderID   string
	ControlPlane bool
	Ready        bool
	// Unreachable is true if nobody has heard of the kubelet for a while: what
	// is said of its pods may be old.
	Unreachable bool
	// Schedulable is true if a pod that tolerates control planes may go there.
	Schedulable bool
	// Machine is the one that Cluster API says it belongs to; empty if it says
	// nothing.
	Machine string
	// Address is the node's own.
	Address string
	// Kubelet is the kubelet's version.
	Kubelet string
	// APIServer is the version of the API server there; empty if there is
	// none or it is not known.
	APIServer string
	// APIServerPort is where that one listens.
	APIServerPort string
	// Components are what runs there as static pods.
	Components Components
	// CertificatesExpire is when the API server's certificate there expires;
	// zero if that is not known.
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
	roleControlPlane  = "node-role.kubernetes.io/control-plane"
	apiServerName     = "kube-apiserver"
	componentLabel    = "component"
	etcdName          = "etcd"
	kubeVIPName       = "kube-vip"
	tierLabel         = "tier"
	tierControlPlane  = "control-plane"
	kubeadmConfigName = "kubeadm-config"
)

// newNodes puts together what is known of each node.
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
				node.APIServer = imageVersion(pod.Spec.Containers[0].Image)
				node.APIServerPort = securePort(&pod.Spec.Containers[0])
			}
		}
		found = append(found, node)
	}
	return found
}

// oldestKubelet is the lowest version of a worker's kubelet.
func oldestKubelet(nodes []Node) string {
	oldest := ""
	for _, node := range nodes {
		if !node.ControlPlane && node.Kubelet != "" && (oldest == "" || newer(oldest, node.Kubelet)) {
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

// nodeUnreachable reports whether the control plane lost sight of the kubelet.
func nodeUnreachable(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// securePort is where an API server listens, as its command says.
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

// imageVersion returns the version in an image's tag, or nothing. A tag cannot
// hold a plus sign, so an underscore stands for it.
func imageVersion(image string) string {
	image, _, _ = strings.Cut(image, "@")
	at := strings.LastIndex(image, ":")
	if at < strings.LastIndex(image, "/") || at < 0 || !strings.HasPrefix(image[at+1:], "v") {
		return ""
	}
	return strings.ReplaceAll(image[at+1:], "_", "+")
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
