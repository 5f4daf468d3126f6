package controlplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
)

// Tenants looks into tenant clusters.
type Tenants interface {
	// Observe reports what the tenant says of itself. It waits for no tenant
	// that does not answer.
	Observe(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) Facts
	// RemoveMember removes a member of the tenant's etcd, through those on the
	// nodes.
	RemoveMember(ctx context.Context, cluster client.ObjectKey, nodes []Node, id uint64) error
	// CoreDNS lists the tenant's CoreDNS pods.
	CoreDNS(ctx context.Context, cluster client.ObjectKey) ([]corev1.Pod, error)
	// Evict takes a pod from its node as a drain does.
	Evict(ctx context.Context, cluster client.ObjectKey, pod *corev1.Pod) error
	// Source tells when a tenant begins or ceases to answer.
	Source(controller string, of handler.MapFunc) source.Source
	// Notify tells w when something changed inside a tenant.
	Notify(w Watcher, of func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request)
}

// Watcher is the part of a controller that takes sources.
type Watcher interface {
	Watch(src source.TypedSource[reconcile.Request]) error
}

// Facts are what a tenant said of itself.
type Facts struct {
	// Answers is true if the API server answers.
	Answers bool
	// Silence is why it does not, for people.
	Silence string
	// Early is true while nobody has asked yet, as after a start of this
	// process. The silence means nothing then.
	Early bool
	// KubeadmConfig is true once kubeadm has stored its configuration, that
	// is once the control plane was initialised.
	KubeadmConfig bool
	// Nodes are all nodes.
	Nodes []Node
	// Etcd is nil if etcd could not be asked.
	Etcd *etcd.Health
	// EtcdSilence is why it could not be asked, for people.
	EtcdSilence string
	// Again is when to look again, because nobody will tell; 0 means never.
	Again time.Duration
}

// Node is a node of a tenant.
type Node struct {
	Name         string
	ProviderID   string
	ControlPlane bool
	Ready        bool
	// Schedulable is true if a pod that tolerates control planes may go there.
	Schedulable bool
	// APIServer is the version of the API server there; empty if there is
	// none or it is not known.
	APIServer string
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
	tierLabel         = "tier"
	tierControlPlane  = "control-plane"
	kubeadmConfigName = "kubeadm-config"
)

// newNodes puts together what is known of each node.
func newNodes(nodes []corev1.Node, pods []corev1.Pod) []Node {
	versions := map[string]string{}
	for i := range pods {
		if pods[i].Labels[componentLabel] == apiServerName && len(pods[i].Spec.Containers) > 0 {
			versions[pods[i].Spec.NodeName] = imageVersion(pods[i].Spec.Containers[0].Image)
		}
	}
	found := make([]Node, 0, len(nodes))
	for i := range nodes {
		_, controlPlane := nodes[i].Labels[roleControlPlane]
		found = append(found, Node{
			Name:         nodes[i].Name,
			ProviderID:   nodes[i].Spec.ProviderID,
			ControlPlane: controlPlane,
			Ready:        nodeReady(&nodes[i]),
			Schedulable:  schedulable(&nodes[i]),
			APIServer:    versions[nodes[i].Name],
		})
	}
	return found
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
