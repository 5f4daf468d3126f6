package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// remediate stores a remediation and then deletes the machine. After a crash in
// between the same remediation continues.
func (r *actor) remediate(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	machine, ok := s.Machines[d.Machine]
	if !ok || d.Remediation == nil {
		return nil
	}
	if err := r.storeRemediation(ctx, s, d.Remediation); err != nil {
		return err
	}
	if conditions.Has(machine, clusterv1.MachineOwnerRemediatedCondition) {
		before := machine.DeepCopy()
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: controlplanev1.RemediatingReason, Message: "The machine is being replaced",
		})
		if err := r.PatchConditions(ctx, before, machine); err != nil {
			return err
		}
	}
	if err := r.Client.Delete(ctx, machine, scope.UID(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting machine %s: %w", d.Machine, err)
	}
	remediations.Inc()
	r.Event(s, corev1.EventTypeWarning, controlplanev1.RemediatingReason, string(d.Action), d.Reason)
	return nil
}

// storeRemediation stores a remediation on the observed version of the control
// plane: based on an older version, a retry could be counted never or twice.
func (r *actor) storeRemediation(ctx context.Context, s *scope.Scope, begun *plan.Remediation) error {
	encoded, err := input.EncodeRemediation(begun)
	if err != nil {
		return err
	}
	if s.ControlPlane.Annotations[controlplanev1.RemediationAnnotation] == encoded {
		return nil
	}
	stored := s.ControlPlane.DeepCopy()
	if stored.Annotations == nil {
		stored.Annotations = map[string]string{}
	}
	stored.Annotations[controlplanev1.RemediationAnnotation] = encoded
	if err := r.Client.Patch(ctx, stored, client.MergeFromWithOptions(s.ControlPlane, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("storing remediation of machine %s: %w", begun.Machine, err)
	}
	s.ControlPlane.Annotations = stored.Annotations
	return nil
}
