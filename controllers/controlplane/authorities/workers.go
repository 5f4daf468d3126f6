package authorities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// worker is a Machine that is not of the control plane.
type worker struct {
	machine *clusterv1.Machine
	// config is nil unless the node has other CAs and the Machine has a NovaConfig.
	config *bootstrapv1.NovaConfig
	// outdated is true if the node has other CAs, and the Machine is not being deleted.
	outdated bool
}

// machineSet is the name of the MachineSet of a worker.
func (w *worker) machineSet() string {
	if owner := metav1.GetControllerOf(w.machine); owner != nil && owner.Kind == "MachineSet" {
		return owner.Name
	}
	return ""
}

// follows reports whether a worker can get other CAs in place. With Prefer it is replaced if
// that does not end in time.
func (w *worker) follows(now time.Time) bool {
	if w.config == nil {
		return false
	}
	switch w.config.Spec.Rollout.GetInPlace() {
	case bootstrapv1.InPlaceOnly:
		return true
	case bootstrapv1.InPlacePrefer:
		since := scope.UpdatingSince(w.machine)
		return since.IsZero() || now.Sub(since) <= timelimits.LongGrace
	default:
		return false
	}
}

// change decides how workers get other CAs: which ones are changed in place now, one of
// each MachineDeployment at a time, and of which MachineSets the machines are replaced.
func change(workers []worker, paused sets.Set[string], now time.Time) (update []*worker, replace sets.Set[string]) {
	replace = sets.New[string]()
	busy := paused.Clone()
	group := func(w *worker) string {
		return cmp.Or(w.machine.Labels[clusterv1.MachineDeploymentNameLabel], w.machineSet(), w.machine.Name)
	}
	for i := range workers {
		w := &workers[i]
		if scope.Updating(w.machine) {
			busy.Insert(group(w))
		}
		if set := w.machineSet(); set != "" && w.outdated && !w.follows(now) {
			replace.Insert(set)
		}
	}
	for i := range workers {
		w := &workers[i]
		if w.outdated && w.follows(now) && !busy.Has(group(w)) && !replace.Has(w.machineSet()) {
			update = append(update, w)
			busy.Insert(group(w))
		}
	}
	return update, replace
}

// rollOut lets workers have the current CAs: in place if their NovaConfig allows it, else
// Cluster API replaces them. They follow the control plane: while its only API server
// restarts, Cluster API neither drains nor deletes the Nodes of the machines that it deletes.
func (r *Keeper) rollOut(ctx context.Context, s *scope.Scope, machines []clusterv1.Machine) error {
	for _, differences := range s.Differs {
		if slices.Contains(differences, Difference) {
			return nil
		}
	}
	workers, err := r.workers(ctx, s, machines)
	if err != nil {
		return err
	}
	machineSets, deployments := &clusterv1.MachineSetList{}, &clusterv1.MachineDeploymentList{}
	if err := errors.Join(r.Client.List(ctx, machineSets, s.InCluster()...), r.Client.List(ctx, deployments, s.InCluster()...)); err != nil {
		return fmt.Errorf("listing MachineDeployments and MachineSets: %w", err)
	}
	paused := sets.New[string]()
	for i := range deployments.Items {
		if d := &deployments.Items[i]; ptr.Deref(d.Spec.Paused, false) {
			paused.Insert(d.Name)
		}
	}
	update, replace := change(workers, paused, r.CurrentTime())
	for _, w := range update {
		if err := r.update(ctx, s, w); err != nil {
			return fmt.Errorf("changing machine %s in place: %w", w.machine.Name, err)
		}
	}
	for i := range deployments.Items {
		if err := r.replace(ctx, s, &deployments.Items[i], machineSets.Items, replace); err != nil {
			return err
		}
	}
	return nil
}

// workers returns the Machines of workers, by name.
func (r *Keeper) workers(ctx context.Context, s *scope.Scope, machines []clusterv1.Machine) ([]worker, error) {
	var workers []worker
	for i := range machines {
		w := worker{machine: &machines[i]}
		if util.IsControlPlaneMachine(w.machine) {
			continue
		}
		node := facts.NodeOf(w.machine, s.Workload.Nodes)
		w.outdated = node != nil && w.machine.DeletionTimestamp.IsZero() && node.Authorities != s.Rotation.State.ID
		if ref := w.machine.Spec.Bootstrap.ConfigRef; w.outdated && bootstrapv1.IsNovaConfig(ref) {
			w.config = &bootstrapv1.NovaConfig{}
			if err := r.Client.Get(ctx, client.ObjectKey{Namespace: w.machine.Namespace, Name: ref.Name}, w.config); err != nil {
				return nil, fmt.Errorf("reading NovaConfig of %s: %w", w.machine.Name, err)
			}
		}
		workers = append(workers, w)
	}
	slices.SortFunc(workers, func(a, b worker) int { return cmp.Compare(a.machine.Name, b.machine.Name) })
	return workers, nil
}

// update lets Cluster API change a machine in place, which calls the runtime extension of
// nova-bootstrap: the settings of its node have the current CAs. The Machine is last, with
// both annotations at once: Cluster API would add the other one itself, with the spec of the
// MachineSet.
func (r *Keeper) update(ctx context.Context, s *scope.Scope, w *worker) error {
	infra, err := r.InfraMetadata(ctx, w.machine)
	if err != nil {
		return fmt.Errorf("reading infrastructure machine: %w", err)
	}
	for _, o := range []client.Object{infra, w.config} {
		if err := r.Mark(ctx, o); err != nil {
			return fmt.Errorf("marking %s: %w", o.GetName(), err)
		}
	}
	if err := r.Annotate(ctx, w.machine, func(annotations map[string]string) { scope.RequestUpdate(annotations, r.CurrentTime()) }); err != nil {
		return fmt.Errorf("requesting the change: %w", err)
	}
	r.Event(s, corev1.EventTypeNormal, "MachineUpdating", "RotateAuthorities", fmt.Sprintf("Machine %s has other CAs, and is changed in place", w.machine.Name))
	return nil
}

// replace lets a MachineDeployment replace its machines, if they are in one of the
// MachineSets. A MachineSet that is older than rollout.after is being replaced already.
// After a move to another management cluster all objects are new.
func (r *Keeper) replace(ctx context.Context, s *scope.Scope, d *clusterv1.MachineDeployment, machineSets []clusterv1.MachineSet, outdated sets.Set[string]) error {
	if !d.DeletionTimestamp.IsZero() || !slices.ContainsFunc(machineSets, func(set clusterv1.MachineSet) bool {
		return outdated.Has(set.Name) && metav1.IsControlledBy(&set, d) && !set.CreationTimestamp.Time.Before(d.Spec.Rollout.After.Time)
	}) {
		return nil
	}
	patched := d.DeepCopy()
	patched.Spec.Rollout.After = metav1.NewTime(r.CurrentTime())
	if err := r.Client.Patch(ctx, patched, client.MergeFrom(d)); err != nil {
		return fmt.Errorf("rolling out MachineDeployment %s: %w", d.Name, err)
	}
	r.Event(s, corev1.EventTypeNormal, "MachineDeploymentRolledOut", "RotateAuthorities", fmt.Sprintf("MachineDeployment %s: its machines have other CAs, so rollout.after is the current time", d.Name))
	return nil
}
