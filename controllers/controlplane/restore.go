package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// restorer carries out restores of etcd.
type restorer struct {
	*scope.Config
	*observer
	*maker
}

const (
	// restoreRequeue is the requeue interval during a restore.
	restoreRequeue = 2 * time.Second
	// restoreTimeout is how long a machine may take to restore a snapshot and
	// initialize the control plane before another one tries.
	restoreTimeout = 45 * time.Minute
	// restorePause is the minimum lifetime of a machine that failed to restore:
	// the cause of an immediate failure makes the next one fail too.
	restorePause = 5 * time.Minute
)

// restore blocks all other steps while etcd is restored, deletes the machines
// and creates the one that restores.
func (r *restorer) restore(ctx context.Context, s *scope.Scope) error {
	facts, err := r.observeRestore(ctx, s, r.Client)
	if err != nil {
		return err
	}
	decision := decideRestore(facts)
	if decision.action == restoreNone {
		return nil
	}
	s.RequeueAfter(restoreRequeue)
	if decision.action != restoreHold {
		// The caches may be old, and the action cannot be undone.
		if s.Machines, err = r.ownedMachines(ctx, r.APIReader, s); err != nil {
			return err
		}
		if decision.action == restoreCreate {
			s.Workload = r.WorkloadClusters.Fresh(ctx, s.Key(), s.Sorted())
		}
		if facts, err = r.observeRestore(ctx, s, r.APIReader); err != nil {
			return err
		}
		decision = decideRestore(facts)
	}
	s.Waiting = decision.reason
	switch decision.action {
	case restoreBegin:
		return r.beginRestore(ctx, s, facts, decision)
	case restoreRemove:
		return r.removeForRestore(ctx, s, decision)
	case restoreCreate:
		return r.createForRestore(ctx, s, facts)
	case restoreEnd:
		return r.endRestore(ctx, s, facts, decision)
	case restoreNone, restoreHold:
	}
	return nil
}

// observeRestore reads the restore in progress and its state.
func (r *restorer) observeRestore(ctx context.Context, s *scope.Scope, c client.Reader) (restoreFacts, error) {
	facts := restoreFacts{now: r.CurrentTime(), alive: s.Workload.Answers || s.Workload.Alive}
	facts.unreachable = !facts.alive && !initUnknown(&s.Workload, facts.now)
	for _, node := range s.Workload.Nodes {
		if facts.alive && node.APIServer != "" {
			facts.servers = append(facts.servers, node.Name)
		}
	}
	var err error
	if facts.lock, err = initlock.ObserveRestore(ctx, r.Client, s.Cluster); err != nil {
		return facts, err
	}
	list := &controlplanev1.NovaEtcdRestoreList{}
	if err := c.List(ctx, list, client.InNamespace(s.ControlPlane.Namespace)); err != nil {
		return facts, fmt.Errorf("listing restores: %w", err)
	}
	if next, ok := controlplanev1.NextEtcdRestore(list.Items, s.ControlPlane.Name); ok {
		facts.next, facts.restored = next.Name, next.Restored()
		secret := &corev1.Secret{}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(next), secret)
		if client.IgnoreNotFound(err) != nil {
			return facts, fmt.Errorf("reading Secret of restore %s: %w", next.Name, err)
		}
		// A restore that was recreated with the same name may have another
		// snapshot, and the Secret of the old one is deleted shortly after its
		// owner.
		facts.prepared = err == nil && secret.Type == controlplanev1.EtcdRestoreSecretType && metav1.IsControlledBy(secret, next)
	}
	facts.abandoned = facts.lock.Name != "" && !underWay(list.Items, facts.lock.Name)
	facts.up = restoredAlone(s, facts.lock.Machine)
	for _, m := range s.Sorted() {
		facts.machines = append(facts.machines, newRestoreMachine(s, m))
	}
	return facts, nil
}

func newRestoreMachine(s *scope.Scope, m *clusterv1.Machine) restoreMachine {
	isNode := m.Status.NodeRef.IsDefined() || facts.NodeOf(m, s.Workload.Nodes) != nil
	return restoreMachine{
		name: m.Name, created: m.CreationTimestamp.Time, node: isNode,
		// Before it is a node a MachineHealthCheck only fails by its startup
		// timeout; a restore has its own timeout.
		failed:   isNode && checkFailed(m, isNode) || bootFailed(m, isNode),
		deleting: !m.DeletionTimestamp.IsZero(),
	}
}

// underWay reports whether a restore of that name is in progress.
func underWay(all []controlplanev1.NovaEtcdRestore, name string) bool {
	return slices.ContainsFunc(all, func(o controlplanev1.NovaEtcdRestore) bool {
		return o.Name == name && o.Finished() == "" && o.DeletionTimestamp.IsZero()
	})
}

// restoredAlone reports whether a machine is a node of the control plane, and
// its member of etcd is the only one and works. With external etcd it has no
// member.
func restoredAlone(s *scope.Scope, name string) bool {
	machine := s.Machines[name]
	if machine == nil || !machine.DeletionTimestamp.IsZero() || !s.Workload.Answers {
		return false
	}
	node := facts.NodeOf(machine, s.Workload.Nodes)
	if node == nil || !node.ControlPlane {
		return false
	}
	return scope.ExternalEtcd(s) || s.Workload.Etcd != nil && len(s.Workload.Etcd.Problems([]string{node.Name})) == 0
}

// endRestore resumes the other steps. Nodes of workers without machines stay:
// their deletion was part of the restore.
func (r *restorer) endRestore(ctx context.Context, s *scope.Scope, facts restoreFacts, decision restoreDecision) error {
	if err := initlock.EndRestore(ctx, r.Client, s.Cluster, facts.lock.Name); err != nil {
		return ignoreConflict(err)
	}
	r.Event(s, corev1.EventTypeNormal, "RestoreFinished", "Restore", decision.reason)
	return nil
}

func (r *restorer) beginRestore(ctx context.Context, s *scope.Scope, facts restoreFacts, decision restoreDecision) error {
	if err := initlock.BeginRestore(ctx, r.Client, s.Cluster, facts.next, "", r.CurrentTime()); err != nil {
		return ignoreConflict(err)
	}
	r.Event(s, corev1.EventTypeNormal, "RestoreStarted", "Restore", decision.reason)
	return nil
}

// removeForRestore deletes machines without a drain and without our hook: the
// API server that a drain needs is deleted too.
func (r *restorer) removeForRestore(ctx context.Context, s *scope.Scope, decision restoreDecision) error {
	for _, name := range decision.machines {
		machine := s.Machines[name]
		_, hooked := machine.Annotations[controlplanev1.MachineHookAnnotation]
		_, excluded := machine.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]
		if hooked || !excluded {
			err := r.Annotate(ctx, machine, func(annotations map[string]string) {
				delete(annotations, controlplanev1.MachineHookAnnotation)
				annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
				annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation] = ""
			})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("releasing machine %s: %w", name, err)
			}
		}
		r.forget(s, machine)
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, machine, scope.UID(machine)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting machine %s: %w", name, err)
		}
		r.Event(s, corev1.EventTypeNormal, "MachineDeleted", "Restore", "Deleted Machine "+name+" to restore etcd")
	}
	return nil
}

// createForRestore creates a machine and assigns the init lock to it. A machine
// that was created and not assigned, after a crash, is deleted like the others.
func (r *restorer) createForRestore(ctx context.Context, s *scope.Scope, facts restoreFacts) error {
	if err := r.deleteOrphans(ctx, s); err != nil {
		return err
	}
	machine, err := r.create(ctx, s, pickDomain(ctx, s), "")
	if err != nil {
		r.Warn(s, controlplanev1.MachineCreationFailedEventReason, "Restore", err)
		return fmt.Errorf("creating machine that restores etcd: %w", err)
	}
	s.Machines.Insert(machine)
	machinesCreated.Inc()
	if err := initlock.BeginRestore(ctx, r.Client, s.Cluster, facts.next, machine.Name, r.CurrentTime()); err != nil {
		return ignoreConflict(err)
	}
	r.Event(s, corev1.EventTypeNormal, "MachineCreated", "Restore", "Created Machine "+machine.Name+" to restore etcd")
	return nil
}

// ignoreConflict drops conflicts with other writers.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// controlPlaneOfRestore returns the control plane of a restore.
func controlPlaneOfRestore(_ context.Context, o client.Object) []ctrl.Request {
	restore, ok := o.(*controlplanev1.NovaEtcdRestore)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: restore.Namespace, Name: restore.Spec.ControlPlaneRef.Name}}}
}
