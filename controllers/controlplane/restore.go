package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// restorer carries out restores of etcd.
type restorer struct {
	*scope.Config
	*observer
	*maker
}

// carryOutRestore carries out an action of a restore.
func (r *restorer) carryOutRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	switch d.Action {
	case plan.BeginRestore:
		return r.beginRestore(ctx, s, d)
	case plan.DeleteForRestore:
		return r.removeForRestore(ctx, s, d)
	case plan.CreateForRestore:
		return r.createForRestore(ctx, s, d)
	case plan.EndRestore:
		return r.endRestore(ctx, s, d)
	default:
		return nil
	}
}

// endRestore resumes the other steps. Nodes of workers without machines stay:
// their deletion was part of the restore.
func (r *restorer) endRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	if err := initlock.EndRestore(ctx, r.Client, s.Cluster, s.Restore.Begun); err != nil {
		return ignoreConflict(err)
	}
	countDone(d.Action)
	r.Event(s, corev1.EventTypeNormal, "RestoreFinished", "Restore", d.Reason)
	return nil
}

func (r *restorer) beginRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	if err := initlock.BeginRestore(ctx, r.Client, s.Cluster, s.Restore.Next, "", r.CurrentTime()); err != nil {
		return ignoreConflict(err)
	}
	countDone(d.Action)
	r.Event(s, corev1.EventTypeNormal, "RestoreStarted", "Restore", d.Reason)
	return nil
}

// removeForRestore deletes machines without a drain and without our hook: the
// API server that a drain needs is deleted too.
func (r *restorer) removeForRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	deleted := false
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
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, machine, scope.UID(machine)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting machine %s: %w", name, err)
		}
		deleted = true
		r.Event(s, corev1.EventTypeNormal, "MachineDeleted", "Restore", "Deleted Machine "+name+" to restore etcd")
	}
	if deleted {
		countDone(d.Action)
	}
	return nil
}

// createForRestore creates a machine and assigns the init lock to it. A machine
// that was created and not assigned, after a crash, is deleted like the others.
func (r *restorer) createForRestore(ctx context.Context, s *scope.Scope, d plan.Decision) error {
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
	countDone(d.Action)
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
