package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// ReportMachine sets the conditions of a machine about the decision: why its
// deletion waits, and the progress of its remediation.
func ReportMachine(s *scope.Scope, in plan.Input, seen plan.Machine, machine *clusterv1.Machine) {
	reportHold(s, in, seen, machine)
	reportRemediation(s, in, seen, machine)
}

// reportHold reports on a machine that is being deleted why it is held.
func reportHold(s *scope.Scope, in plan.Input, seen plan.Machine, machine *clusterv1.Machine) {
	c := metav1.Condition{Type: controlplanev1.MachineSafeToDeleteCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.MachineNotSafeToDeleteReason}
	if !seen.Deleting {
		conditions.Delete(machine, c.Type)
		return
	}
	why := plan.Needed(in, seen)
	switch {
	case seen.Released:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.MachineSafeToDeleteReason
	case !seen.AtHook:
		c.Message = "Waiting for the node to be drained and its volumes to be detached"
	case why != "":
		c.Message = fmt.Sprintf("Waiting for other machines to replace it: %s. The annotation %s removes it before", why, controlplanev1.SkipRedundancyAnnotation)
	case s.Decision.Reason != "":
		c.Message = s.Decision.Reason
	default:
		c.Message = "Waiting for its member of etcd to be removed"
	}
	conditions.Set(machine, c)
}

// reportRemediation reports the remediation on a machine with a failed
// MachineHealthCheck, as the contract requires.
func reportRemediation(s *scope.Scope, in plan.Input, seen plan.Machine, machine *clusterv1.Machine) {
	if !conditions.Has(machine, clusterv1.MachineOwnerRemediatedCondition) {
		return
	}
	if conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededCondition) && !seen.Deleting {
		// The machine recovered before its remediation.
		conditions.Delete(machine, clusterv1.MachineOwnerRemediatedCondition)
		return
	}
	if !conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) || plan.UnhealthyReason(in, seen) == "" {
		return
	}
	c := metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, Message: s.Decision.Reason,
	}
	if seen.Deleting {
		c.Reason, c.Message = controlplanev1.RemediatingReason, "The machine is being replaced"
	}
	conditions.Set(machine, c)
}
