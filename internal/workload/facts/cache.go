package facts

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

const (
	// maxText is the maximum length of a stored text without a limit of its
	// own, such as an address.
	maxText = 1 << 10
	// maxStatuses is the maximum number of stored containers of a static pod.
	maxStatuses = 8
)

// Keep keeps only the fields of Nodes, pods and kubeadm's configuration
// that Facts are read from. A kubelet may write megabytes into its Node, and
// the list of images alone is most of a normal one.
func Keep(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Node:
		return keepNode(o), nil
	case *corev1.Pod:
		return keepPod(o), nil
	case *corev1.ConfigMap:
		kept := &corev1.ConfigMap{TypeMeta: o.TypeMeta, ObjectMeta: keepMeta(o.ObjectMeta)}
		if stored, ok := o.Data[kubeadm.ConfigurationKey]; ok {
			kept.Data = map[string]string{kubeadm.ConfigurationKey: strings.Clone(stored)}
		}
		if fields, ok := o.Annotations[kubeadm.FieldsAnnotation]; ok {
			kept.Annotations = map[string]string{kubeadm.FieldsAnnotation: strings.Clone(fields)}
		}
		return kept, nil
	default:
		return o, nil
	}
}

func keepMeta(o metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
	}
}

func keepNode(o *corev1.Node) *corev1.Node {
	kept := &corev1.Node{TypeMeta: o.TypeMeta, ObjectMeta: keepMeta(o.ObjectMeta)}
	kept.Labels = keepKeys(o.Labels, RoleControlPlane, nodeconfig.AuthoritiesLabel)
	kept.Annotations = keepKeys(o.Annotations, clusterv1.MachineAnnotation)
	kept.Spec = corev1.NodeSpec{ProviderID: keepText(o.Spec.ProviderID), Unschedulable: o.Spec.Unschedulable}
	if !schedulable(o) {
		// The reason why no pods are scheduled is not relevant.
		kept.Spec.Unschedulable = true
	}
	kept.Status.NodeInfo.KubeletVersion = keepText(o.Status.NodeInfo.KubeletVersion)
	if address := keepText(internalAddress(o)); address != "" {
		kept.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
			break
		}
	}
	return kept
}

func keepPod(o *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{TypeMeta: o.TypeMeta, ObjectMeta: keepMeta(o.ObjectMeta)}
	kept.Labels = keepKeys(o.Labels, TierLabel, ComponentLabel)
	kept.Spec.NodeName = o.Spec.NodeName
	if len(o.Spec.Containers) > 0 {
		from := &o.Spec.Containers[0]
		kept.Spec.Containers = []corev1.Container{{
			Name: from.Name, Image: keepText(from.Image), Command: []string{"--secure-port=" + keepText(securePort(from))},
		}}
	}
	kept.Status.Phase = o.Status.Phase
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
			break
		}
	}
	for _, status := range o.Status.ContainerStatuses[:min(len(o.Status.ContainerStatuses), maxStatuses)] {
		one := corev1.ContainerStatus{Name: status.Name, RestartCount: status.RestartCount}
		if is := status.State.Running; is != nil {
			one.State.Running = &corev1.ContainerStateRunning{StartedAt: is.StartedAt}
		}
		if is := status.State.Waiting; is != nil {
			one.State.Waiting = &corev1.ContainerStateWaiting{Reason: keepText(is.Reason)}
		}
		if was := status.LastTerminationState.Terminated; was != nil {
			one.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{StartedAt: was.StartedAt, FinishedAt: was.FinishedAt}
		}
		kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, one)
	}
	return kept
}

// keepKeys returns the entries of the given keys.
func keepKeys(of map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for key, value := range of {
		if slices.Contains(keys, key) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = keepText(value)
		}
	}
	return kept
}

// keepText returns a copy of a text, or nothing if it is too long. Without the
// copy the whole response would stay in memory.
func keepText(text string) string {
	if len(text) > maxText {
		return ""
	}
	return strings.Clone(text)
}
