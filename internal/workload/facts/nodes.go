package facts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// newNodes combines the observations of each node.
func newNodes(nodes []corev1.Node, pods []corev1.Pod, now time.Time) []Node {
	byNode := map[string][]*corev1.Pod{}
	for i := range pods {
		byNode[pods[i].Spec.NodeName] = append(byNode[pods[i].Spec.NodeName], &pods[i])
	}
	found := make([]Node, 0, len(nodes))
	for i := range nodes {
		_, controlPlane := nodes[i].Labels[RoleControlPlane]
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
			Authorities:  nodes[i].Labels[nodeconfig.AuthoritiesLabel],
		}
		for _, pod := range byNode[node.Name] {
			node.Components.observe(pod, now)
			if pod.Labels[ComponentLabel] == APIServerName && len(pod.Spec.Containers) > 0 {
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
		if taint.Key != RoleControlPlane && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	return !node.Spec.Unschedulable
}

// Fingerprint changes whenever etcd may have changed.
func Fingerprint(machines []*clusterv1.Machine, nodes []Node, pods []corev1.Pod) string {
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
		if pods[i].Labels[ComponentLabel] != EtcdName {
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
