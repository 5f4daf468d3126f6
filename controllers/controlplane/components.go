package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
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
	switch pod.Labels[componentLabel] {
	case apiServerName:
		c.APIServer = newComponent(pod, now)
	case "kube-controller-manager":
		c.ControllerManager = newComponent(pod, now)
	case "kube-scheduler":
		c.Scheduler = newComponent(pod, now)
	case etcdName:
		c.Etcd = newComponent(pod, now)
	case kubeVIPName:
		c.KubeVIP = newComponent(pod, now)
	}
}

// running reports whether all of kubeadm's components run. etcd counts only if
// it is stacked.
func (c *Components) running(stackedEtcd bool) bool {
	return c.APIServer.State == Running && c.ControllerManager.State == Running && c.Scheduler.State == Running &&
		(!stackedEtcd || c.Etcd.State == Running)
}

// kubeVIPMinRuntime is how long kube-vip runs before it counts as running. Its pod
// has no probe and is ready as soon as it is started; if it cannot run, for
// instance because its interface does not exist, it ends at once and is
// restarted.
const kubeVIPMinRuntime = 10 * time.Second

// newComponent reads a static pod. A container that restarts repeatedly changes
// between waiting, running and terminated: its message stays the same.
func newComponent(pod *corev1.Pod, now time.Time) Component {
	proven := proven(pod, now)
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return Component{State: Deleting}
	case podReady(pod) && proven.IsZero():
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
	if pod.Labels[componentLabel] != kubeVIPName {
		return time.Time{}
	}
	for _, status := range pod.Status.ContainerStatuses {
		is, was := status.State.Running, status.LastTerminationState.Terminated
		if is == nil || was != nil && was.FinishedAt.Sub(was.StartedAt.Time) >= kubeVIPMinRuntime {
			continue
		}
		// The start time is from the host's clock. A time far from the
		// controller's clock proves nothing and must not block.
		if ran := now.Sub(is.StartedAt.Time); ran < kubeVIPMinRuntime && ran > -kubeVIPMinRuntime {
			return is.StartedAt.Add(kubeVIPMinRuntime)
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

// kubeVIPOf returns kube-vip of a machine, and whether its state is known: pods
// of older machines lack the component label, and with a load balancer there is
// no kube-vip.
func kubeVIPOf(s *scope, machine *clusterv1.Machine, node *Node) (c Component, known bool) {
	if node == nil || s.controlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP {
		return Component{}, false
	}
	c = node.Components.KubeVIP
	return c, c.State != Missing || conditions.Has(machine, controlplanev1.MachineKubeVIPPodHealthyCondition)
}

// serves reports whether all required components run on a machine's node.
func serves(s *scope, machine *clusterv1.Machine, node *Node) bool {
	kubeVIP, known := kubeVIPOf(s, machine, node)
	return node.Ready && node.Components.running(!externalEtcd(s)) && (!known || kubeVIP.State == Running)
}

// componentGroup are machines with the same message.
type componentGroup struct {
	message  string
	failed   bool
	machines []string
}

// componentGroups returns the machines on which not all components are known to
// run, first those with a failed component.
func (s *scope) componentGroups() []componentGroup {
	var groups []componentGroup
	for _, machine := range s.sorted() {
		message, failed := componentTrouble(healthOf(s, machine))
		if message == "" {
			continue
		}
		at := slices.IndexFunc(groups, func(g componentGroup) bool { return g.message == message && g.failed == failed })
		if at < 0 {
			at = len(groups)
			groups = append(groups, componentGroup{message: message, failed: failed})
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

// componentTrouble returns the message about one machine's components, a line
// for each, or one line if the same holds for all. EtcdClusterHealthy reports
// the members of etcd.
func componentTrouble(health []metav1.Condition) (message string, failed bool) {
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

// describe formats groups as Cluster API's own control plane does.
func describe(groups []componentGroup) string {
	lines := make([]string, 0, len(groups))
	for _, g := range groups {
		what := "Machine"
		if len(g.machines) > 1 {
			what = "Machines"
		}
		lines = append(lines, fmt.Sprintf("* %s %s:\n%s", what, shorten(g.machines), g.message))
	}
	return strings.Join(lines, "\n")
}
