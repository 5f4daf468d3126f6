package facts

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// ComponentState is the state of a static pod.
type ComponentState string

const (
	// Missing means that the pod does not exist.
	Missing ComponentState = ""
	// Provisioning means that it starts.
	Provisioning ComponentState = controlplanev1.MachinePodProvisioningReason
	// Running means that it runs and is ready.
	Running ComponentState = controlplanev1.MachinePodRunningReason
	// Failed means that it does not run any more, or restarts repeatedly.
	Failed ComponentState = controlplanev1.MachinePodFailedReason
	// Deleting means that it is being deleted.
	Deleting ComponentState = controlplanev1.MachinePodDeletingReason
)

// Component is one static pod of the control plane.
type Component struct {
	State ComponentState
	// Message explains why it does not run, for users.
	Message string
	// Proven is when a component that has just started counts as running,
	// unless it ends before; zero if no wait is needed.
	Proven time.Time
}

// Components are the static pods of a control plane node: kubeadm's, and
// kube-vip. kube-vip is Missing on a node that was created before its pod had
// the component label.
type Components struct {
	APIServer, ControllerManager, Scheduler, Etcd, KubeVIP Component
}

// observe sets the component that the pod's label names.
func (c *Components) observe(pod *corev1.Pod, now time.Time) {
	switch pod.Labels[ComponentLabel] {
	case APIServerName:
		c.APIServer = newComponent(pod, now)
	case "kube-controller-manager":
		c.ControllerManager = newComponent(pod, now)
	case "kube-scheduler":
		c.Scheduler = newComponent(pod, now)
	case EtcdName:
		c.Etcd = newComponent(pod, now)
	case KubeVIPName:
		c.KubeVIP = newComponent(pod, now)
	}
}

// Running reports whether all of kubeadm's components run. etcd counts only if
// it is stacked.
func (c *Components) Running(stackedEtcd bool) bool {
	return c.APIServer.State == Running && c.ControllerManager.State == Running && c.Scheduler.State == Running &&
		(!stackedEtcd || c.Etcd.State == Running)
}

// newComponent reads a static pod. A container that restarts repeatedly changes
// between waiting, running and terminated: its message stays the same.
func newComponent(pod *corev1.Pod, now time.Time) Component {
	proven := proven(pod, now)
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return Component{State: Deleting}
	case PodReady(pod) && proven.IsZero():
		return Component{State: Running}
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return Component{State: Failed, Message: "Its containers have ended"}
	}
	for _, status := range pod.Status.ContainerStatuses {
		waiting := status.State.Waiting
		switch {
		case waiting != nil && (waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff"):
			return Component{State: Failed, Message: "Its image cannot be pulled"}
		case status.RestartCount > 0:
			return Component{State: Failed, Message: "It is not ready and was restarted", Proven: proven}
		}
	}
	return Component{State: Provisioning, Message: "Waiting for it to be ready", Proven: proven}
}

// proven returns when kube-vip will have run long enough; zero if it has, and
// for components with a probe. A container that ran long before it ended, as it
// does when it loses the address, counts at once.
func proven(pod *corev1.Pod, now time.Time) time.Time {
	if pod.Labels[ComponentLabel] != KubeVIPName {
		return time.Time{}
	}
	for _, status := range pod.Status.ContainerStatuses {
		is, was := status.State.Running, status.LastTerminationState.Terminated
		if is == nil || was != nil && was.FinishedAt.Sub(was.StartedAt.Time) >= 2*timelimits.KubeVIPHandover {
			continue
		}
		// The start time is from the host's clock. A time far from the
		// controller's clock proves nothing and must not block.
		if ran := now.Sub(is.StartedAt.Time); ran < 2*timelimits.KubeVIPHandover && ran > -2*timelimits.KubeVIPHandover {
			return is.StartedAt.Add(2 * timelimits.KubeVIPHandover)
		}
	}
	return time.Time{}
}

// nextProven returns when to reconcile again for components that have just
// started; 0 means never.
func nextProven(nodes []Node, now time.Time) time.Duration {
	var first time.Duration
	for i := range nodes {
		if proven := nodes[i].Components.KubeVIP.Proven; !proven.IsZero() {
			if left := max(proven.Sub(now), time.Second); first == 0 || left < first {
				first = left
			}
		}
	}
	return first
}

// PodReady reports whether a pod is ready and is not being deleted.
func PodReady(pod *corev1.Pod) bool {
	if !pod.DeletionTimestamp.IsZero() {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
