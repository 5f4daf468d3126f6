package controlplane

import (
	corev1 "k8s.io/api/core/v1"
)

// ComponentState is how a static pod is.
type ComponentState string

const (
	// Missing means that there is no such pod.
	Missing ComponentState = ""
	// Provisioning means that it starts.
	Provisioning ComponentState = "Provisioning"
	// Running means that it runs and is ready.
	Running ComponentState = "Running"
	// Failed means that it runs no more, or is started again and again.
	Failed ComponentState = "Failed"
	// Deleting means that it is being taken away.
	Deleting ComponentState = "Deleting"
)

// Component is one static pod of the control plane.
type Component struct {
	State ComponentState
	// Message says more about one that does not run, for people.
	Message string
}

// Components are what kubeadm runs on a control plane node.
type Components struct {
	APIServer, ControllerManager, Scheduler, Etcd Component
}

// observe takes a pod for what its label says it is.
func (c *Components) observe(pod *corev1.Pod) {
	switch pod.Labels[componentLabel] {
	case apiServerName:
		c.APIServer = newComponent(pod)
	case "kube-controller-manager":
		c.ControllerManager = newComponent(pod)
	case "kube-scheduler":
		c.Scheduler = newComponent(pod)
	case etcdName:
		c.Etcd = newComponent(pod)
	}
}

// running reports whether all of them run. etcd counts only if it is a part of
// the control plane.
func (c *Components) running(stackedEtcd bool) bool {
	return c.APIServer.State == Running && c.ControllerManager.State == Running && c.Scheduler.State == Running &&
		(!stackedEtcd || c.Etcd.State == Running)
}

// newComponent reads a static pod. A container that is started again and again
// is in turn waiting, running and ended: what is said of it stays the same.
func newComponent(pod *corev1.Pod) Component {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return Component{State: Deleting}
	case podReady(pod):
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
			return Component{State: Failed, Message: "It is not ready and was started again"}
		}
	}
	return Component{State: Provisioning, Message: "Waiting for it to be ready"}
}
