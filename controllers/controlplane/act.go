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
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// actor decides on machines and members of etcd, and carries out the decision.
type actor struct {
	*Config
	*observer
	*maker
	*endpointMover
}

const (
	// actionRequeue is when to reconcile again after an action.
	actionRequeue = 50 * time.Millisecond
	// actsAtOnce bounds the creations of one reconcile.
	actsAtOnce = 16
)

// act decides, carries out the one action and requests another reconcile.
// Creations of machines and the init are carried out in one reconcile: all
// machines of a new control plane boot while the first of them initializes it.
func (r *actor) act(ctx context.Context, s *scope) error {
	if err := r.deleteOrphans(ctx, s); err != nil {
		return err
	}
	sure := false
	for range actsAtOnce {
		s.decision = plan.Decide(input(s, r.now()))
		if !acts(s.decision) {
			break
		}
		if !sure {
			// The caches may be old, and the action cannot be undone.
			was := s.initialized
			if err := r.readUncached(ctx, s); err != nil {
				return err
			}
			if s.initialized != was {
				// The steps before this one used the old value.
				s.decision = plan.Decision{}
				s.requeueAfter(actionRequeue)
				return nil
			}
			sure = true
			continue
		}
		if err := r.carryOut(ctx, s, s.decision); err != nil {
			return r.failed(s, err)
		}
		if a := s.decision.Action; a != plan.CreateMachine && a != plan.StartInit {
			s.requeueAfter(actionRequeue)
			return nil
		}
	}
	s.requeueAfter(s.decision.RequeueAfter)
	return nil
}

// acts reports whether the decision is an action.
func acts(d plan.Decision) bool { return d.Action != plan.Nothing && d.Action != plan.Wait }

// failed records the failure of an action.
func (r *actor) failed(s *scope, err error) error {
	if moving, ok := errors.AsType[*endpointMoveError](err); ok {
		// The action is not carried out yet, and the conditions report why.
		s.decision.Action, s.decision.Reason = plan.Wait, moving.waits
		s.requeueAfter(endpointMoveRequeue)
		return nil
	}
	if errors.Is(err, initlock.ErrMoved) || apierrors.IsConflict(err) {
		// Another writer changed the object; the decision may no longer be
		// valid.
		s.requeueAfter(actionRequeue)
		return nil
	}
	actionsFailed.WithLabelValues(string(s.decision.Action)).Inc()
	reason := string(s.decision.Action) + "Failed"
	if s.decision.Action == plan.CreateMachine {
		reason = "MachineCreationFailed"
		err = fmt.Errorf("creating machine: %w", err)
	}
	r.warn(s, reason, string(s.decision.Action), err)
	return err
}

// carryOut carries out the decision.
func (r *actor) carryOut(ctx context.Context, s *scope, d plan.Decision) error {
	ctrl.LoggerFrom(ctx).Info("Acting", "action", d.Action, "Machine", d.Machine, "reason", d.Reason)
	do := map[plan.Action]func(context.Context, *scope, plan.Decision) error{
		plan.CreateMachine: r.createMachine,
		plan.StartInit:     r.startInit,
		plan.ReplaceInit:   r.remediate,
		plan.Remediate:     r.remediate,
		plan.DeleteMachine: r.deleteMachine,
		plan.MoveLeader:    r.moveLeader,
		plan.RemoveMember:  r.removeMember,
		plan.ReleaseHook:   r.releaseMachine,
		plan.SetVersion:    r.setVersion,
	}[d.Action]
	if do == nil {
		return fmt.Errorf("carrying out %s: unknown action", d.Action)
	}
	if err := do(ctx, s, d); err != nil {
		return err
	}
	actionsDone.WithLabelValues(string(d.Action)).Inc()
	return nil
}

func (r *actor) createMachine(ctx context.Context, s *scope, d plan.Decision) error {
	machine, err := r.create(ctx, s, pickDomain(ctx, s), d.Replaces)
	if err != nil {
		return err
	}
	s.machines.Insert(machine)
	machinesCreated.Inc()
	r.event(s, corev1.EventTypeNormal, "MachineCreated", string(d.Action), "Created Machine "+machine.Name)
	return nil
}

// startInit assigns the init lock to a machine, unless another machine acquired
// it.
func (r *actor) startInit(ctx context.Context, s *scope, d plan.Decision) error {
	now := r.now()
	if err := initlock.Assign(ctx, r.Client, s.cluster, s.lock.Holder, d.Machine, now); err != nil {
		return fmt.Errorf("assigning the init lock: %w", err)
	}
	s.lock = initlock.State{Holder: d.Machine, Since: now}
	r.event(s, corev1.EventTypeNormal, "InitStarted", string(d.Action), d.Reason)
	return nil
}

// deleteMachine deletes the observed machine, and no other one with its name.
func (r *actor) deleteMachine(ctx context.Context, s *scope, d plan.Decision) error {
	machine, ok := s.machines[d.Machine]
	if !ok {
		return nil
	}
	if err := r.Client.Delete(ctx, machine, uid(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting machine %s: %w", d.Machine, err)
	}
	r.event(s, corev1.EventTypeNormal, "MachineDeleted", string(d.Action), d.Reason)
	return nil
}

func (r *actor) moveLeader(ctx context.Context, s *scope, d plan.Decision) error {
	leader, ok := memberByID(s, d.Member)
	if !ok {
		return nil
	}
	if err := r.WorkloadClusters.MoveLeader(ctx, s.key(), leader.Name, d.Target); err != nil {
		r.leaderTransfers.note(s.controlPlane.UID, d.Member)
		return fmt.Errorf("moving etcd's leadership: %w", err)
	}
	r.event(s, corev1.EventTypeNormal, "EtcdLeaderMoved", string(d.Action), d.Reason)
	return nil
}

// removeMember removes a member by its ID. Before that it stores on the machine
// that it was a member, because a removed member never joins again.
func (r *actor) removeMember(ctx context.Context, s *scope, d plan.Decision) error {
	if machine, ok := s.machines[d.Machine]; ok {
		if err := r.moveEndpoint(ctx, s, machine); err != nil {
			return err
		}
		if err := r.recordJoined(ctx, machine); err != nil {
			return err
		}
	}
	if err := r.WorkloadClusters.RemoveMember(ctx, s.key(), s.workload.Nodes, d.Member); err != nil {
		return fmt.Errorf("removing etcd member %x: %w", d.Member, err)
	}
	r.leaderTransfers.forget(s.controlPlane.UID, d.Member)
	r.event(s, corev1.EventTypeNormal, "EtcdMemberRemoved", string(d.Action), d.Reason)
	return nil
}

func (r *actor) releaseMachine(ctx context.Context, s *scope, d plan.Decision) error {
	machine, ok := s.machines[d.Machine]
	if !ok {
		return nil
	}
	if err := r.moveEndpoint(ctx, s, machine); err != nil {
		return err
	}
	if err := r.releaseHook(ctx, machine); err != nil {
		return err
	}
	r.endpointMoves.forget(machine.UID)
	r.event(s, corev1.EventTypeNormal, "MachineSafeToDelete", string(d.Action), d.Reason)
	return nil
}

func (r *actor) setVersion(ctx context.Context, s *scope, d plan.Decision) error {
	want, err := upgrade(s)
	if err != nil {
		return err
	}
	if err := r.WorkloadClusters.SetVersion(ctx, s.key(), want); err != nil {
		return fmt.Errorf("setting version %s in the workload cluster: %w", s.controlPlane.Spec.Version, err)
	}
	r.event(s, corev1.EventTypeNormal, "VersionSet", string(d.Action), d.Reason)
	return nil
}

func memberByID(s *scope, id uint64) (etcd.Member, bool) {
	if s.workload.Etcd == nil {
		return etcd.Member{}, false
	}
	at := slices.IndexFunc(s.workload.Etcd.Members, func(m etcd.Member) bool { return m.ID == id })
	if at < 0 {
		return etcd.Member{}, false
	}
	return s.workload.Etcd.Members[at], true
}
