package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/upgrade"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// actor carries out actions on machines and members of etcd.
type actor struct {
	*scope.Config
	*observer
	*maker
}

const (
	// actsAtOnce bounds the creations of one reconcile.
	actsAtOnce = 16
)

// requeueAfterAction returns when to reconcile again after an action. Another
// node takes the endpoint's address with the next renewal of its lease.
func requeueAfterAction(a plan.Action) time.Duration {
	if a == plan.MoveEndpoint {
		return timelimits.ShortPoll
	}
	return timelimits.NextAction
}

// acts reports whether the decision is an action.
func acts(d plan.Decision) bool { return d.Action != plan.Nothing && d.Action != plan.Wait }

// failed records the failure of an action.
func (r *actor) failed(s *scope.Scope, err error) error {
	if errors.Is(err, initlock.ErrMoved) || apierrors.IsConflict(err) {
		// Another writer changed the object; the decision may no longer be
		// valid.
		s.RequeueAfter(requeueAfterAction(s.Decision.Action))
		return nil
	}
	err = countFailed(s.Decision.Action, err)
	reason := string(s.Decision.Action) + "Failed"
	if s.Decision.Action == plan.CreateMachine {
		reason = "MachineCreationFailed"
		err = fmt.Errorf("creating machine: %w", err)
	}
	r.Warn(s, reason, string(s.Decision.Action), err)
	return err
}

// carryOut carries out the decision.
func (r *actor) carryOut(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	ctrl.LoggerFrom(ctx).Info("Acting", "action", d.Action, "Machine", d.Machine, "reason", d.Reason)
	do := map[plan.Action]func(context.Context, *scope.Scope, plan.Decision) error{
		plan.CreateMachine: r.createMachine,
		plan.StartInit:     r.startInit,
		plan.ReplaceInit:   r.remediate,
		plan.Remediate:     r.remediate,
		plan.DeleteMachine: r.deleteMachine,
		plan.UpdateMachine: r.updateMachine,
		plan.CancelUpdate:  r.cancelUpdate,
		plan.MoveLeader:    r.moveLeader,
		plan.RemoveMember:  r.removeMember,
		plan.ReleaseHook:   r.releaseMachine,
		plan.SetVersion:    r.setVersion,
		plan.MoveEndpoint:  r.moveEndpoint,
	}[d.Action]
	if do == nil {
		return fmt.Errorf("carrying out %s: unknown action", d.Action)
	}
	if err := do(ctx, s, d); err != nil {
		return err
	}
	countDone(d.Action)
	return nil
}

// countDone counts a successful action.
func countDone(a plan.Action) { actionsDone.WithLabelValues(string(a)).Inc() }

// countFailed counts a failed action. It returns the error.
func countFailed(a plan.Action, err error) error {
	if err != nil {
		actionsFailed.WithLabelValues(string(a)).Inc()
	}
	return err
}

func (r *actor) createMachine(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	machine, err := r.create(ctx, s, pickDomain(ctx, s), d.Replaces)
	if err != nil {
		return err
	}
	s.Machines.Insert(machine)
	machinesCreated.Inc()
	r.Event(s, corev1.EventTypeNormal, "MachineCreated", string(d.Action), "Created Machine "+machine.Name)
	return nil
}

// startInit assigns the init lock to a machine, unless another machine acquired
// it.
func (r *actor) startInit(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	now := r.CurrentTime()
	if err := initlock.Assign(ctx, r.Client, s.Cluster, s.Lock.Holder, d.Machine, now); err != nil {
		return fmt.Errorf("assigning the init lock: %w", err)
	}
	s.Lock = initlock.State{Holder: d.Machine, Since: now}
	r.Event(s, corev1.EventTypeNormal, "InitStarted", string(d.Action), d.Reason)
	return nil
}

// deleteMachine deletes the observed machine, and no other one with its name.
func (r *actor) deleteMachine(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	machine, ok := s.Machines[d.Machine]
	if !ok {
		return nil
	}
	if err := r.Client.Delete(ctx, machine, scope.UID(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting machine %s: %w", d.Machine, err)
	}
	r.Event(s, corev1.EventTypeNormal, "MachineDeleted", string(d.Action), d.Reason)
	return nil
}

func (r *actor) moveLeader(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	leader, ok := memberByID(s, d.Member)
	if !ok {
		return nil
	}
	if err := r.WorkloadClusters.MoveLeader(ctx, s.Key(), leader.Name, d.Target); err != nil {
		r.leaderTransfers.note(s.ControlPlane.UID, d.Member)
		return fmt.Errorf("moving etcd's leadership: %w", err)
	}
	r.Event(s, corev1.EventTypeNormal, "EtcdLeaderMoved", string(d.Action), d.Reason)
	return nil
}

// removeMember removes a member by its ID. Before that it stores on the machine
// that it was a member, because a removed member never joins again.
func (r *actor) removeMember(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	r.warnNotMoved(s, d)
	if machine, ok := s.Machines[d.Machine]; ok {
		if err := r.RecordJoined(ctx, machine); err != nil {
			return err
		}
	}
	if err := r.WorkloadClusters.RemoveMember(ctx, s.Key(), s.Workload.Nodes, d.Member); err != nil {
		return fmt.Errorf("removing etcd member %x: %w", d.Member, err)
	}
	if machine, ok := s.Machines[d.Machine]; ok {
		if move, moved := r.endpointMoves.Get(moveKeyOf(s, machine)); moved && move.Failed {
			r.endpointMoves.Update(moveKeyOf(s, machine), func(move *plan.EndpointMove) { move.Failed = false })
		}
	}
	r.leaderTransfers.forget(s.ControlPlane.UID, d.Member)
	r.Event(s, corev1.EventTypeNormal, "EtcdMemberRemoved", string(d.Action), d.Reason)
	return nil
}

func (r *actor) releaseMachine(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	machine, ok := s.Machines[d.Machine]
	if !ok {
		return nil
	}
	r.warnNotMoved(s, d)
	if err := r.ReleaseHook(ctx, machine); err != nil {
		return err
	}
	r.Event(s, corev1.EventTypeNormal, "MachineSafeToDelete", string(d.Action), d.Reason)
	return nil
}

func (r *actor) setVersion(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	want, err := upgrade.Desired(s)
	if err != nil {
		return err
	}
	if err := r.WorkloadClusters.SetVersion(ctx, s.Key(), want); err != nil {
		return fmt.Errorf("setting version %s in the workload cluster: %w", s.ControlPlane.Spec.Version, err)
	}
	r.Event(s, corev1.EventTypeNormal, "VersionSet", string(d.Action), d.Reason)
	return nil
}

func memberByID(s *scope.Scope, id uint64) (etcd.Member, bool) {
	if s.Workload.Etcd == nil {
		return etcd.Member{}, false
	}
	at := slices.IndexFunc(s.Workload.Etcd.Members, func(m etcd.Member) bool { return m.ID == id })
	if at < 0 {
		return etcd.Member{}, false
	}
	return s.Workload.Etcd.Members[at], true
}
