package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// sync applies to the machines the settings that need no rollout, and sets
// their UpToDate conditions. A machine that rejects them blocks no other step:
// it may have to be replaced.
func (r *maker) sync(ctx context.Context, s *scope.Scope) error {
	changes := input.Changes(s)
	for _, machine := range s.Sorted() {
		if !machine.DeletionTimestamp.IsZero() {
			r.forget(s, machine)
			continue
		}
		if err := r.syncMachine(ctx, s, changes, machine); err != nil {
			s.Failures = append(s.Failures, fmt.Errorf("applying settings to machine %s: %w", machine.Name, err))
		}
	}
	return nil
}

func (r *maker) syncMachine(ctx context.Context, s *scope.Scope, changes []plan.Change, machine *clusterv1.Machine) error {
	if err := r.apply(ctx, fieldManager, desiredMachine(s, machine), machine); err != nil {
		return err
	}
	if infra := s.Infra[machine.Name]; infra != nil {
		if err := r.apply(ctx, metadataManager, desiredMetadata(s, infra), infra); err != nil {
			return err
		}
	}
	if config := s.Configs[machine.Name]; config != nil {
		meta := &metav1.PartialObjectMetadata{ObjectMeta: config.ObjectMeta}
		meta.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("NovaConfig"))
		if err := r.apply(ctx, metadataManager, desiredMetadata(s, meta), config); err != nil {
			return err
		}
	}
	return r.reportUpToDate(ctx, changes, machine)
}

// reportUpToDate sets the machine's UpToDate condition.
func (r *maker) reportUpToDate(ctx context.Context, changes []plan.Change, machine *clusterv1.Machine) error {
	p, err := patch.NewHelper(machine, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	condition := metav1.Condition{
		Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineUpToDateReason,
	}
	if at := slices.IndexFunc(changes, func(c plan.Change) bool { return c.Machine == machine.Name }); at >= 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, clusterv1.MachineNotUpToDateReason
		condition.Message = strings.ToUpper(changes[at].Text[:1]) + changes[at].Text[1:]
	}
	conditions.Set(machine, condition)
	err = p.Patch(ctx, machine, patch.WithOwnedConditions{Conditions: []string{clusterv1.MachineUpToDateCondition}})
	if err = scope.WithoutGone(err); err != nil {
		return fmt.Errorf("reporting whether it is up to date: %w", err)
	}
	return nil
}
