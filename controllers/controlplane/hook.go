package controlplane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
)

// recordJoined records on a machine that it was a member of etcd.
func (r *Reconciler) recordJoined(ctx context.Context, machine *clusterv1.Machine) error {
	if _, noted := machine.Annotations[controlplanev1.JoinedAnnotation]; noted {
		return nil
	}
	if err := r.annotate(ctx, machine, func(annotations map[string]string) {
		annotations[controlplanev1.JoinedAnnotation] = ""
	}); err != nil {
		return fmt.Errorf("recording that machine %s was a member of etcd: %w", machine.Name, err)
	}
	return nil
}

// releaseHook removes the hook, so that Cluster API continues the deletion of a
// machine. A deleted machine needs no release.
func (r *Reconciler) releaseHook(ctx context.Context, machine *clusterv1.Machine) error {
	if _, held := machine.Annotations[controlplanev1.MachineHookAnnotation]; !held {
		return nil
	}
	err := r.annotate(ctx, machine, func(annotations map[string]string) {
		delete(annotations, controlplanev1.MachineHookAnnotation)
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing machine %s: %w", machine.Name, err)
	}
	return nil
}

// annotate changes the annotations of the observed machine.
func (r *Reconciler) annotate(ctx context.Context, machine *clusterv1.Machine, change func(map[string]string)) error {
	before := machine.DeepCopy()
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	change(machine.Annotations)
	return r.Client.Patch(ctx, machine, client.MergeFrom(before))
}

// reportMachines reports the decision on each machine: why its deletion waits,
// and the progress of its remediation.
func (r *Reconciler) reportMachines(ctx context.Context, s *scope) error {
	if s.initialized && s.workload.Pending {
		// The workload cluster was not probed yet; the conditions stay
		// unchanged.
		return nil
	}
	in := input(s, r.now())
	for _, seen := range in.Machines {
		machine := s.machines[seen.Name]
		before := machine.DeepCopy()
		reportHold(s, in, seen, machine)
		reportRemediation(s, in, seen, machine)
		if sameConditions(before, machine) {
			continue
		}
		if err := r.patchConditions(ctx, before, machine); err != nil {
			return err
		}
	}
	return nil
}

// reportHold reports on a machine that is being deleted why it is held.
func reportHold(s *scope, in plan.Input, seen plan.Machine, machine *clusterv1.Machine) {
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
	case s.decision.Reason != "":
		c.Message = s.decision.Reason
	default:
		c.Message = "Waiting for its member of etcd to be removed"
	}
	conditions.Set(machine, c)
}

// reportRemediation reports the remediation on a machine with a failed
// MachineHealthCheck, as the contract requires.
func reportRemediation(s *scope, in plan.Input, seen plan.Machine, machine *clusterv1.Machine) {
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
		Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, Message: s.decision.Reason,
	}
	if seen.Deleting {
		c.Reason, c.Message = controlplanev1.RemediatingReason, "The machine is being replaced"
	}
	conditions.Set(machine, c)
}

// machineConditions are the conditions of a machine that only its control plane
// sets.
var machineConditions = patch.WithOwnedConditions{Conditions: []string{controlplanev1.MachineSafeToDeleteCondition}}

func (r *Reconciler) patchConditions(ctx context.Context, before, machine *clusterv1.Machine) error {
	p, err := patch.NewHelper(before, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	if err := withoutGone(p.Patch(ctx, machine, machineConditions)); err != nil {
		return fmt.Errorf("reporting on machine %s: %w", machine.Name, err)
	}
	return nil
}

func sameConditions(a, b *clusterv1.Machine) bool {
	return len(a.Status.Conditions) == len(b.Status.Conditions) && equalConditions(a.Status.Conditions, b.Status.Conditions)
}

func equalConditions(a, b []metav1.Condition) bool {
	for i := range a {
		other := conditions.Get(&clusterv1.Machine{Status: clusterv1.MachineStatus{Conditions: b}}, a[i].Type)
		if other == nil || !conditions.HasSameState(&a[i], other) {
			return false
		}
	}
	return true
}
