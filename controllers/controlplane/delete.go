package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// remover deletes control planes, and nodes without a machine.
type remover struct {
	*scope.Config
	*observer
	*maker
}

// carryOutDeletion carries out an action of the deletion.
func (r *remover) carryOutDeletion(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	r.leaderTransfers.Forget(s.ControlPlane.UID)
	r.observedNodes.Forget(s.ControlPlane.UID)
	if d.Action == plan.EndDeletion {
		return r.endDeletion(ctx, s)
	}
	var errs []error
	deleted := false
	for _, name := range d.Machines {
		machine := s.Machines[name]
		r.forget(s, machine)
		// etcd is not needed any more.
		if err := r.ReleaseHook(ctx, machine); err != nil {
			errs = append(errs, err)
			continue
		}
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, machine); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting machine %s: %w", machine.Name, err))
			continue
		}
		deleted = true
	}
	if deleted {
		countDone(d.Action)
	}
	return errors.Join(errs...)
}

// endDeletion removes the finalizer of a control plane without machines.
func (r *remover) endDeletion(ctx context.Context, s *scope.Scope) error {
	if s.Cluster != nil && s.Cluster.DeletionTimestamp.IsZero() {
		// Another control plane of this Cluster is initialized again.
		if err := initlock.Reset(ctx, r.Client, s.Cluster); err != nil {
			return fmt.Errorf("resetting the init lock: %w", err)
		}
	}
	controllerutil.RemoveFinalizer(s.ControlPlane, controlplanev1.Finalizer)
	countDone(plan.EndDeletion)
	return nil
}

// observeWorkers finds the workers that a deletion waits for.
func (r *remover) observeWorkers(ctx context.Context, s *scope.Scope) (err error) {
	if s.Requirements.Workers, err = r.workers(ctx, s); len(s.Requirements.Workers) > 0 {
		s.RequeueAfter(timelimits.LongPoll)
	}
	return err
}

// workers returns the objects that are or create worker machines. Without a
// Cluster no other controller deletes them, so the deletion does not wait for
// them.
func (r *remover) workers(ctx context.Context, s *scope.Scope) ([]string, error) {
	if s.Cluster == nil {
		return nil, nil
	}
	where := s.InCluster()
	var names []string
	deployments := &clusterv1.MachineDeploymentList{}
	if err := r.Client.List(ctx, deployments, where...); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	for i := range deployments.Items {
		names = append(names, "MachineDeployment "+deployments.Items[i].Name)
	}
	sets := &clusterv1.MachineSetList{}
	if err := r.Client.List(ctx, sets, where...); err != nil {
		return nil, fmt.Errorf("listing MachineSets: %w", err)
	}
	for i := range sets.Items {
		names = append(names, "MachineSet "+sets.Items[i].Name)
	}
	pools := &clusterv1.MachinePoolList{}
	if err := r.APIReader.List(ctx, pools, where...); err != nil {
		return nil, fmt.Errorf("listing MachinePools: %w", err)
	}
	for i := range pools.Items {
		names = append(names, "MachinePool "+pools.Items[i].Name)
	}
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, where...); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	for i := range machines.Items {
		// Machines of this control plane that a backup restored have no owner.
		if machine := &machines.Items[i]; !metav1.IsControlledBy(machine, s.ControlPlane) && !ownerless(machine, s.ControlPlane) {
			names = append(names, "Machine "+machine.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
