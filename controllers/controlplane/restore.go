package controlplane

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// restorer carries out restores of etcd.
type restorer struct {
	*scope.Config
	*observer
	*maker
}

// restore blocks all other steps while etcd is restored, deletes the machines
// and creates the one that restores.
func (r *restorer) restore(ctx context.Context, s *scope.Scope) error {
	if err := r.observeRestore(ctx, s, r.Client); err != nil {
		return err
	}
	if s.Decision = plan.Decide(input(s, r.CurrentTime())); s.Decision.Hold == "" {
		s.Decision = plan.Decision{}
		return nil
	}
	s.RequeueAfter(timelimits.ShortPoll)
	if s.Decision.Action != plan.Wait {
		// The caches may be old, and the action cannot be undone.
		var err error
		if s.Machines, err = r.ownedMachines(ctx, r.APIReader, s); err != nil {
			return err
		}
		if s.Decision.Action == plan.CreateForRestore {
			s.Workload = r.WorkloadClusters.Fresh(ctx, s.Key(), s.Sorted())
		}
		if err := r.observeRestore(ctx, s, r.APIReader); err != nil {
			return err
		}
		s.Decision = plan.Decide(input(s, r.CurrentTime()))
	}
	switch s.Waiting = s.Decision.Hold; s.Decision.Action {
	case plan.BeginRestore:
		return r.beginRestore(ctx, s, s.Decision)
	case plan.DeleteForRestore:
		return r.removeForRestore(ctx, s, s.Decision)
	case plan.CreateForRestore:
		return r.createForRestore(ctx, s)
	case plan.EndRestore:
		return r.endRestore(ctx, s, s.Decision)
	default:
		if s.Waiting == "" {
			// There is none any more.
			s.Decision = plan.Decision{}
		}
		return nil
	}
}

// observeRestore reads the restore in progress and its state.
func (r *restorer) observeRestore(ctx context.Context, s *scope.Scope, c client.Reader) error {
	lock, err := initlock.ObserveRestore(ctx, r.Client, s.Cluster)
	if err != nil {
		return err
	}
	list := &controlplanev1.NovaEtcdRestoreList{}
	if err := c.List(ctx, list, client.InNamespace(s.ControlPlane.Namespace)); err != nil {
		return fmt.Errorf("listing restores: %w", err)
	}
	s.Restore = plan.Restore{
		Alive: s.Workload.Answers || s.Workload.Alive, Begun: lock.Name, Machine: lock.Machine, Since: lock.Since,
		Abandoned: lock.Name != "" && !underWay(list.Items, lock.Name), Up: restoredAlone(s, lock.Machine),
	}
	s.Restore.Unreachable = !s.Restore.Alive && !initUnknown(&s.Workload, r.CurrentTime())
	for _, node := range s.Workload.Nodes {
		if s.Restore.Alive && node.APIServer != "" {
			s.Restore.Servers = append(s.Restore.Servers, node.Name)
		}
	}
	if m := s.Machines[lock.Machine]; m != nil {
		isNode := m.Status.NodeRef.IsDefined() || facts.NodeOf(m, s.Workload.Nodes) != nil
		s.Restore.Created, s.Restore.Node = m.CreationTimestamp.Time, isNode
		// Before it is a node a MachineHealthCheck only fails by its startup
		// timeout; a restore has its own timeout.
		s.Restore.Failed = isNode && checkFailed(m, isNode) || bootFailed(m, isNode)
	}
	if next, ok := controlplanev1.NextEtcdRestore(list.Items, s.ControlPlane.Name); ok {
		s.Restore.Next, s.Restore.Restored = next.Name, next.Restored()
		secret := &corev1.Secret{}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(next), secret)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Secret of restore %s: %w", next.Name, err)
		}
		// A restore that was recreated with the same name may have another
		// snapshot, and the Secret of the old one is deleted shortly after its
		// owner.
		s.Restore.Prepared = err == nil && secret.Type == controlplanev1.EtcdRestoreSecretType && metav1.IsControlledBy(secret, next)
	}
	return nil
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
func (r *restorer) endRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	if err := initlock.EndRestore(ctx, r.Client, s.Cluster, s.Restore.Begun); err != nil {
		return ignoreConflict(err)
	}
	r.Event(s, corev1.EventTypeNormal, "RestoreFinished", "Restore", d.Reason)
	return nil
}

func (r *restorer) beginRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	if err := initlock.BeginRestore(ctx, r.Client, s.Cluster, s.Restore.Next, "", r.CurrentTime()); err != nil {
		return ignoreConflict(err)
	}
	r.Event(s, corev1.EventTypeNormal, "RestoreStarted", "Restore", d.Reason)
	return nil
}

// removeForRestore deletes machines without a drain and without our hook: the
// API server that a drain needs is deleted too.
func (r *restorer) removeForRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	for _, name := range d.Machines {
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
		r.endpointMoves.Forget(machine.UID)
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
func (r *restorer) createForRestore(ctx context.Context, s *scope.Scope) error {
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
	if err := initlock.BeginRestore(ctx, r.Client, s.Cluster, s.Restore.Next, machine.Name, r.CurrentTime()); err != nil {
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
