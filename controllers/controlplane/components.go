package controlplane

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
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

// componentGroup are machines of which the same is to be said.
type componentGroup struct {
	says     string
	failed   bool
	machines []string
}

// componentGroups are the machines on which not all components are known to
// run, first those on which one fails.
func (s *scope) componentGroups() []componentGroup {
	var groups []componentGroup
	for _, machine := range s.sorted() {
		says, failed := componentTrouble(healthOf(s, machine))
		if says == "" {
			continue
		}
		at := slices.IndexFunc(groups, func(g componentGroup) bool { return g.says == says && g.failed == failed })
		if at < 0 {
			at = len(groups)
			groups = append(groups, componentGroup{says: says, failed: failed})
		}
		groups[at].machines = append(groups[at].machines, machine.Name)
	}
	slices.SortStableFunc(groups, func(a, b componentGroup) int {
		switch {
		case a.failed == b.failed:
			return 0
		case a.failed:
			return -1
		default:
			return 1
		}
	})
	return groups
}

// componentTrouble is what is to be said of one machine's components, a line
// each, or one line if the same holds for all. Members of etcd are told of by
// EtcdClusterHealthy.
func componentTrouble(health []metav1.Condition) (says string, failed bool) {
	var lines []string
	messages := sets.Set[string]{}
	for _, is := range health {
		if is.Type == controlplanev1.MachineEtcdMemberHealthyCondition {
			continue
		}
		messages.Insert(is.Message)
		if is.Status != metav1.ConditionTrue {
			failed = failed || is.Status == metav1.ConditionFalse
			lines = append(lines, fmt.Sprintf("  * %s: %s", is.Type, is.Message))
		}
	}
	if len(lines) > 1 && len(messages) == 1 {
		return "  * Control plane components: " + messages.UnsortedList()[0], failed
	}
	return strings.Join(lines, "\n"), failed
}

// describe writes groups as Cluster API's own control plane does.
func describe(groups []componentGroup) string {
	lines := make([]string, 0, len(groups))
	for _, g := range groups {
		what := "Machine"
		if len(g.machines) > 1 {
			what = "Machines"
		}
		lines = append(lines, fmt.Sprintf("* %s %s:\n%s", what, shorten(g.machines), g.says))
	}
	return strings.Join(lines, "\n")
}
