package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// moveEndpoint moves the endpoint's address off a machine that is to be deleted.
func (r *actor) moveEndpoint(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	machine, ok := s.Machines[d.Machine]
	if !ok {
		return nil
	}
	from := s.Workload.Endpoint.Holder
	if err := r.WorkloadClusters.MoveEndpoint(ctx, s.Key(), from, d.Node); apierrors.IsConflict(err) {
		return err
	} else if err != nil {
		// It moves by itself once the machine is deleted.
		r.Warn(s, controlplanev1.EndpointNotMovedEventReason, string(d.Action), err)
		r.endpointMoves.Update(moveKeyOf(s, machine), func(move *plan.EndpointMove) { move.Failed = true })
		return nil
	}
	r.endpointMoves.Update(moveKeyOf(s, machine), func(move *plan.EndpointMove) { move.Tried = append(move.Tried, d.Node) })
	r.Event(s, corev1.EventTypeNormal, "EndpointMoved", string(d.Action), fmt.Sprintf("Moved the endpoint's address from node %s to node %s", from, d.Node))
	return nil
}

// awaitEndpoint records since when a machine waits for another one to take the
// endpoint's address, and forgets waits that were interrupted.
func (r *actor) awaitEndpoint(s *scope.Scope, d plan.Decision) {
	in := input.Of(s, r.CurrentTime())
	for _, m := range in.Machines {
		if plan.EndpointWaitInterrupted(in, d, m) {
			r.endpointMoves.Forget(moveKeyOf(s, s.Machines[m.Name]))
		}
	}
	machine, ok := s.Machines[d.Machine]
	if !ok || !d.MovesEndpoint {
		return
	}
	s.RequeueAfter(timelimits.ShortPoll)
	r.endpointMoves.Update(moveKeyOf(s, machine), func(move *plan.EndpointMove) {
		if move.Since.IsZero() {
			move.Since = r.CurrentTime()
		}
	})
}

// warnNotMoved reports that the API server of a machine stops although no other
// machine has taken the endpoint's address.
func (r *actor) warnNotMoved(s *scope.Scope, d plan.Decision) {
	if !d.EndpointNotMoved {
		return
	}
	err := fmt.Errorf("machine %s is deleted although no other machine has taken the endpoint's address from it within %.0f minutes", d.Machine, timelimits.LongGrace.Minutes())
	if d.Action == plan.UpdateMachine {
		err = fmt.Errorf("machine %s is changed in place although no other machine has taken the endpoint's address from it: the endpoint does not respond while its API server restarts", d.Machine)
	}
	r.Warn(s, controlplanev1.EndpointNotMovedEventReason, string(plan.MoveEndpoint), err)
}
