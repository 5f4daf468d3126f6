package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// componentGroup are machines with the same message.
type componentGroup struct {
	message  string
	failed   bool
	machines []string
}

// componentGroups returns the machines on which not all components are known to
// run, first those with a failed component.
func componentGroups(s *scope.Scope) []componentGroup {
	var groups []componentGroup
	for _, machine := range s.Sorted() {
		message, failed := componentTrouble(MachineHealth(s, machine))
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
		lines = append(lines, fmt.Sprintf("* %s %s:\n%s", what, plan.Shorten(g.machines), g.message))
	}
	return strings.Join(lines, "\n")
}

// componentsCondition summarizes the components on the machines' nodes.
func componentsCondition(s *scope.Scope) metav1.Condition {
	c := metav1.Condition{
		Type:   controlplanev1.ControlPlaneComponentsHealthyCondition,
		Status: metav1.ConditionUnknown, Reason: controlplanev1.ControlPlaneComponentsHealthUnknownReason,
	}
	switch {
	case !ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false):
		c.Message = "Waiting for the first machine to initialize the cluster"
		return c
	case !s.ControlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
		return c
	case s.Pending(c.Type):
		return metav1.Condition{}
	case !s.Workload.Answers:
		c.Message = s.Workload.Problem
		return c
	}
	groups := componentGroups(s)
	switch {
	case len(groups) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.ControlPlaneComponentsHealthyReason
	case groups[0].failed:
		c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.ControlPlaneComponentsNotHealthyReason
	}
	c.Message = describe(groups)
	return c
}

// endpointCondition reports whether an API server answers at the Cluster's
// endpoint.
func endpointCondition(s *scope.Scope) metav1.Condition {
	c := metav1.Condition{
		Type: controlplanev1.EndpointHealthyCondition, Status: metav1.ConditionUnknown, Reason: controlplanev1.EndpointUnknownReason,
	}
	switch {
	case !ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false):
		c.Message = "Waiting for the first machine to initialize the cluster"
	case !s.ControlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
	case !s.Workload.Endpoint.Probed:
		if conditions.Has(s.ControlPlane, c.Type) {
			return metav1.Condition{}
		}
		c.Message = "The endpoint has not been probed yet"
	case !s.Workload.Endpoint.Answers:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, controlplanev1.EndpointNotHealthyReason, s.Workload.Endpoint.Problem
		if s.Workload.Endpoint.Holder != "" {
			c.Message += ". The last known holder of the address is node " + s.Workload.Endpoint.Holder
		}
	default:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.EndpointHealthyReason
		if s.Workload.Endpoint.Holder != "" {
			c.Message = "Node " + s.Workload.Endpoint.Holder + " holds the address"
		}
	}
	return c
}
