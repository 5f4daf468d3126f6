package modules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// SetReconciler decides which Clusters of a set may take a change.
type SetReconciler struct {
	// Client reads through the cache and writes.
	Client client.Client
	// Recorder records events.
	Recorder events.EventRecorder
	// WatchFilterValue limits the sets to those with this watch label. If not set, all sets are
	// reconciled.
	WatchFilterValue string
	// ManagementFrom lists the namespaces whose sets may have modules of the management cluster. If
	// not set, no set may have them.
	ManagementFrom []string

	rollouts *rolloutState
	// clusters receives the Clusters that may continue.
	clusters chan event.GenericEvent
}

// Reconcile reconciles a set and its Clusters.
func (r *SetReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	f := &setScope{set: &addonsv1.NovaModuleSet{}}
	if err := r.Client.Get(ctx, req.NamespacedName, f.set); err != nil {
		if apierrors.IsNotFound(err) {
			r.rollouts.Forget(req.NamespacedName)
			for _, state := range []string{"selected", "updated", "ready", "failed"} {
				clusters.DeleteLabelValues(req.Namespace, req.Name, state)
			}
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(f.set, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, f.set, addonsv1.Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(f.set, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	defer func() {
		r.report(f, reterr)
		err := helper.Patch(ctx, f.set, patch.WithOwnedConditions{Conditions: []string{
			addonsv1.ReadyCondition, addonsv1.RollingOutCondition, addonsv1.ValidCondition,
		}})
		if !f.set.DeletionTimestamp.IsZero() {
			err = client.IgnoreNotFound(err)
		}
		reterr = errors.Join(reterr, err)
	}()
	if !f.set.DeletionTimestamp.IsZero() {
		return ctrl.Result{RequeueAfter: pollInterval}, r.reconcileDelete(ctx, f)
	}
	if err := r.plan(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: f.requeueAfter}, nil
}

// plan selects Clusters and allows some of them to continue.
func (r *SetReconciler) plan(ctx context.Context, f *setScope) error {
	f.content = modules.ContentOf(&f.set.Spec)
	if err := r.collectMembers(ctx, f); err != nil {
		return err
	}
	if err := r.collectDependencies(ctx, f); err != nil {
		return err
	}
	f.invalid = f.dependencies.checkCycle(f.key())
	if f.invalid == nil {
		f.invalid = validate(&f.content, f.set, r.ManagementFrom)
	}
	if f.invalid == nil {
		f.invalid = permitted(&f.content, f.set, r.ManagementFrom)
	}
	if f.invalid == nil {
		return r.rollOut(ctx, f)
	}
	return nil
}

// rollOut allows Clusters to continue, as many as the rollout permits.
func (r *SetReconciler) rollOut(ctx context.Context, f *setScope) error {
	if err := r.saveRevision(ctx, f); err != nil {
		return err
	}
	now := time.Now()
	f.plan = modules.PlanRollout(f.members, f.content.Revision(), f.set.Spec.Rollout, now)
	if f.withoutReport > 0 {
		// The choice depends on the state of the other Clusters. They report within moments.
		f.plan.Granted = nil
		return nil
	}
	if !f.plan.Next.IsZero() {
		f.requeueAfter = max(f.plan.Next.Sub(now), time.Second)
	}
	if ptr.Deref(f.set.Spec.Suspend, false) {
		// No Cluster takes a change meanwhile, so no timeout must run.
		r.rollouts.setGrants(f.key(), f.content.Revision(), modules.Rollout{}, now)
		return nil
	}
	for _, cluster := range r.rollouts.setGrants(f.key(), f.content.Revision(), f.plan, now) {
		r.enqueueCluster(cluster)
	}
	return r.deleteUnused(ctx, f)
}

// collectDependencies collects the dependencies between the sets of the namespace.
func (r *SetReconciler) collectDependencies(ctx context.Context, f *setScope) error {
	list := &addonsv1.NovaModuleSetList{}
	// Sets are large, and no code changes them here.
	if err := r.Client.List(ctx, list, client.InNamespace(f.set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NovaModuleSets: %w", err)
	}
	f.dependencies = setDependencies{}
	for i := range list.Items {
		f.dependencies.add(&list.Items[i])
	}
	return nil
}

// collectMembers collects the selected Clusters and their reports.
func (r *SetReconciler) collectMembers(ctx context.Context, f *setScope) error {
	found, namespaces, err := candidates(ctx, r.Client, f.set)
	if err != nil {
		return err
	}
	// The cache lists Clusters in any order, but messages that name some of them must not change.
	slices.SortFunc(found, func(a, b clusterv1.Cluster) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	revision := f.content.Revision()
	f.pending = map[key]bool{}
	for i := range found {
		cluster := &found[i]
		if !cluster.DeletionTimestamp.IsZero() {
			continue
		}
		namespace := namespaces[cluster.Namespace]
		if namespace == nil {
			namespace = &corev1.Namespace{}
		}
		selection, err := selects(f.set, cluster, namespace)
		if err != nil {
			return err
		}
		id := client.ObjectKeyFromObject(cluster)
		if selection == forbidden {
			f.forbidden = append(f.forbidden, id)
		}
		if selection != selected {
			continue
		}
		m := modules.Member{Key: id, Wave: cluster.Labels[f.set.Spec.Rollout.Wave()]}
		reports, ok := r.rollouts.getReport(f.key(), id)
		if !ok {
			f.withoutReport++
			r.enqueueCluster(id)
		}
		m.Revision, m.Since, m.Ready, m.Reachable = reports.revision, reports.since, reports.ready, reports.reachable
		m.Paused, m.Waiting, m.Refused = reports.paused, reports.waiting, reports.unrenderable == revision
		for _, source := range reports.pending {
			f.pending[source] = true
		}
		m.Granted, _ = r.rollouts.isGranted(f.key(), id, revision)
		f.members = append(f.members, m)
	}
	return nil
}

// saveRevision stores the current content, so that Clusters that have to wait can keep it when the set
// changes.
func (r *SetReconciler) saveRevision(ctx context.Context, f *setScope) error {
	revision := f.content.Revision()
	at := &appsv1.ControllerRevision{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: f.set.Namespace, Name: historyName(f.set.Name, revision)}, at)
	if !apierrors.IsNotFound(err) {
		if err != nil {
			return fmt.Errorf("reading revision: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(f.content)
	if err != nil {
		return fmt.Errorf("encoding revision: %w", err)
	}
	at = &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.set.Namespace, Name: historyName(f.set.Name, revision),
			Labels: map[string]string{addonsv1.SetLabel: f.set.Name},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: f.set.Generation,
	}
	if err := controllerutil.SetControllerReference(f.set, at, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting owner of revision: %w", err)
	}
	if err := r.Client.Create(ctx, at, client.FieldOwner(flux.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing revision: %w", err)
	}
	return nil
}

// deleteUnused removes revisions and sources that no Cluster uses. Sources are written before the modules that
// use them, so those are kept that a Cluster still has to get.
func (r *SetReconciler) deleteUnused(ctx context.Context, f *setScope) error {
	used := []string{f.content.Revision()}
	for i := range f.members {
		used = append(used, f.members[i].Revision)
	}
	list := &appsv1.ControllerRevisionList{}
	if err := r.Client.List(ctx, list, client.InNamespace(f.set.Namespace), client.MatchingLabels{addonsv1.SetLabel: f.set.Name}); err != nil {
		return fmt.Errorf("listing revisions: %w", err)
	}
	var errs []error
	for i := range list.Items {
		at := &list.Items[i]
		if slices.ContainsFunc(used, func(revision string) bool { return at.Name == historyName(f.set.Name, revision) }) {
			continue
		}
		errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, at)))
	}
	kept, err := flux.DeleteUnusedSources(ctx, r.Client, f.key(), f.pending, false, time.Now())
	if kept {
		f.requeueWithin(flux.SourceGracePeriod)
	}
	return errors.Join(append(errs, err)...)
}

// reconcileDelete waits until every Cluster has released the set.
func (r *SetReconciler) reconcileDelete(ctx context.Context, f *setScope) error {
	left, err := flux.CountObjects(ctx, r.Client, f.key())
	if err != nil {
		return err
	}
	f.remaining = len(left)
	if err := r.collectDependencies(ctx, f); err != nil {
		return err
	}
	for cluster := range left {
		r.enqueueCluster(cluster)
	}
	if f.remaining > 0 {
		return nil
	}
	if _, err := flux.DeleteUnusedSources(ctx, r.Client, f.key(), nil, true, time.Now()); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(f.set, addonsv1.Finalizer)
	return nil
}

// enqueueCluster triggers a reconcile of a Cluster.
func (r *SetReconciler) enqueueCluster(cluster key) {
	o := &addonsv1.NovaModuleSet{} // only its name is used
	o.Namespace, o.Name = cluster.Namespace, cluster.Name
	r.clusters <- event.GenericEvent{Object: o}
}
