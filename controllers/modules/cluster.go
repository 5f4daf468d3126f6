package modules

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/facts"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// pollInterval is the delay until the next reconcile for states that cause no event: objects that are
// being deleted, or a version hold that waits.
const pollInterval = 10 * time.Second

// removalKey identifies the removal of modules of a set from a Cluster.
type removalKey struct{ cluster, set key }

// ClusterReconciler keeps the modules that one Cluster gets from all sets.
type ClusterReconciler struct {
	// Client reads through the cache and writes.
	Client client.Client
	// Objects reads control planes, infrastructure clusters and bootstrap templates of any kind.
	Objects client.Reader
	// WorkloadClusters connects to workload clusters.
	WorkloadClusters WorkloadClusters
	// Recorder records events.
	Recorder events.EventRecorder
	// WatchFilterValue limits the sets to those with this watch label. If not set, all sets are
	// reconciled.
	WatchFilterValue string
	// ManagementFrom lists the namespaces whose sets may have modules of the management cluster. If
	// not set, no set may have them.
	ManagementFrom []string
	// ManagementImages is the registry from which the images of these modules are pulled. If not set,
	// each image is pulled from its own registry.
	ManagementImages string

	// apiReader reads from the API server.
	apiReader    client.Reader
	rollouts     *rolloutState
	readyObjects flux.ReadyObjects
	outages      flux.Outages[key]
	// removalOutages are the removals that wait for the facts of a Cluster.
	removalOutages flux.Outages[removalKey]
	flux           *flux.Writer
	facts          facts.Reader
	// sets receives the sets whose Clusters changed.
	sets chan event.GenericEvent
}

// Reconcile brings the modules of one Cluster one step closer to the content of its sets. A set that
// fails does not block other sets.
func (r *ClusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	s := &clusterScope{key: req.NamespacedName}
	if err := r.observe(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	var helper *patch.Helper
	if s.cluster != nil {
		var err error
		if helper, err = patch.NewHelper(s.cluster, r.Client); err != nil {
			return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
		}
	} else {
		r.WorkloadClusters.Forget(s.key)
		r.outages.Forget(s.key)
		r.removalOutages.ForgetIf(func(removal removalKey, _ time.Time) bool { return removal.cluster == s.key })
	}
	var errs []error
	var mine []string
	for _, set := range r.relevantSets(s) {
		d := &rolloutTarget{scope: s, key: set, set: s.sets[set], objects: s.objects[set]}
		if err := r.reconcileSet(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("keeping modules of %s: %w", set, err))
		} else if d.factsFailure == nil {
			r.removalOutages.Forget(removalKey{s.key, set})
		}
		mine = append(mine, addonsv1.ClusterCondition(d.setName()))
	}
	if !s.isDeleted() && !s.paused() {
		mine = append(mine, removeOrphanedHolds(s.cluster, s.setNames())...)
	}
	if helper != nil {
		if err := helper.Patch(ctx, s.cluster, patch.WithOwnedConditions{Conditions: mine}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("patching Cluster: %w", err))
		}
	}
	return ctrl.Result{RequeueAfter: s.requeueAfter}, errors.Join(errs...)
}

// observe reads all objects that concern the Cluster.
func (r *ClusterReconciler) observe(ctx context.Context, s *clusterScope) error {
	cluster := &clusterv1.Cluster{}
	switch err := r.Client.Get(ctx, s.key, cluster); {
	case err == nil:
		s.cluster = cluster
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Cluster: %w", err)
	}
	var err error
	if s.missingFlux, err = flux.Missing(r.Client); err != nil {
		return err
	}
	if s.missingFlux == "" {
		if s.objects, err = flux.List(ctx, r.Client, s.key); err != nil {
			return err
		}
	}
	r.readyObjects.MarkReadyBefore(s.key, s.objects)
	list := &addonsv1.NovaModuleSetList{}
	// Sets are large, and there may be hundreds of other customers: only the sets that concern the
	// Cluster are copied.
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NovaModuleSets: %w", err)
	}
	s.sets, s.dependencies = map[key]*addonsv1.NovaModuleSet{}, setDependencies{}
	for i := range list.Items {
		set := client.ObjectKeyFromObject(&list.Items[i])
		_, known := r.rollouts.getReport(set, s.key)
		if known || s.objects[set] != nil || maySelect(&list.Items[i], s.key.Namespace) {
			s.sets[set] = list.Items[i].DeepCopy()
			s.dependencies.add(s.sets[set])
		}
	}
	if !s.isDeleted() {
		s.unreachable = r.WorkloadClusters.Reachable(ctx, s.key)
		s.outage = r.outages.Update(s.key, s.unreachable != nil, time.Now())
		return nil
	}
	if s.cluster == nil {
		return nil
	}
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(s.key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.key.Name}); err != nil {
		return fmt.Errorf("listing Machines: %w", err)
	}
	s.draining = len(machines.Items) > 0
	return nil
}

// relevantSets returns the sets that select the Cluster or selected it before, each after the sets that
// it depends on.
func (r *ClusterReconciler) relevantSets(s *clusterScope) []key {
	var out []key
	for set, object := range s.sets {
		if reconcile.Watched(object, r.WatchFilterValue) {
			out = append(out, set)
		}
	}
	for set := range s.objects {
		if s.sets[set] == nil {
			out = append(out, set)
		}
	}
	s.dependencies.inOrder(out)
	return out
}

// reconcileSet performs the due action for one set and reports the result.
func (r *ClusterReconciler) reconcileSet(ctx context.Context, d *rolloutTarget) error {
	if err := r.selectCluster(ctx, d); err != nil {
		return err
	}
	s := d.scope
	now := d.modeInput()
	var err error
	switch mode := modeOf(now); mode {
	case ensure:
		if s.missingFlux != "" {
			d.reason, d.message = addonsv1.FluxNotInstalledReason, s.missingFlux
		} else {
			err = r.ensure(ctx, d)
		}
		r.reportCondition(d, err)
	case waitForFinalizer:
		// The reconciler of sets adds it, which triggers this one.
	case keepUnchanged:
		// The set gets a report also when there are no modules: it plans only once it has the reports
		// of all its Clusters.
		if now.selected {
			r.recordNotReady(d)
			d.setReasonForPause(now.suspended)
			r.reportCondition(d, nil)
		}
	default:
		if why := d.waitsForDependents(); mode == removeModules && why != "" {
			d.reason, d.message = addonsv1.WaitingForDependentsReason, why
			r.reportCondition(d, nil)
			return nil
		}
		err = r.remove(ctx, d, mode)
		if outcome, is := errors.AsType[*reconcile.Outcome](err); is {
			d.reason, d.message = outcome.Reason, outcome.Message
			s.requeueSoon()
			r.reportCondition(d, nil)
			return nil
		}
		if err != nil {
			if d.set != nil && s.cluster != nil {
				r.reportCondition(d, err)
			}
			return err
		}
		r.removeReport(d)
	}
	return err
}

// removeReport ends the report about a Cluster that the set no longer selects.
func (r *ClusterReconciler) removeReport(d *rolloutTarget) {
	if d.scope.cluster != nil {
		conditions.Delete(d.scope.cluster, addonsv1.ClusterCondition(d.setName()))
		d.removeHold()
	}
	if r.rollouts.removeCluster(d.key, d.scope.key) || len(d.objects) > 0 {
		r.enqueueSet(d.key)
	}
}
