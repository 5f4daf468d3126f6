package nodegroup

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/deployments"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// Reconciler annotates MachineDeployments that cluster-autoscaler may scale.
type Reconciler struct {
	// Client reads through the cache and writes. Defaults to the manager's
	// client.
	Client client.Client
	// WatchFilterValue limits the MachineDeployments to those with this watch
	// label. If not set, all are reconciled.
	WatchFilterValue string
}

// SetupWithManager starts reconciling with the manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	fromCluster, err := util.ClusterToTypedObjectsMapper(r.Client, &clusterv1.MachineDeploymentList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to MachineDeployments: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodegroup").
		For(&clusterv1.MachineDeployment{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(reconcile.Options(options)).
		Watches(&bootstrapv1.NovaConfigTemplate{}, handler.EnqueueRequestsFromMapFunc(deployments.FromTemplate(r.Client, func(*clusterv1.MachineDeployment) bool { return true })), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(fromCluster), builder.WithPredicates(pauseChanged())).
		Complete(r)
}

// Reconcile annotates one MachineDeployment.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d := &clusterv1.MachineDeployment{}
	if err := r.Client.Get(ctx, req.NamespacedName, d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !d.DeletionTimestamp.IsZero() || !reconcile.Watched(d, r.WatchFilterValue) || deployments.TemplateOf(&d.Spec.Template.Spec) == "" {
		return ctrl.Result{}, nil
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, d.Namespace, d.Spec.ClusterName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil // its creation triggers a reconcile
		}
		return ctrl.Result{}, fmt.Errorf("reading Cluster: %w", err)
	}
	if capiannotations.IsPaused(cluster, d) {
		return ctrl.Result{}, nil
	}
	wanted, known, err := r.wanted(ctx, d)
	if err != nil || !known {
		return ctrl.Result{}, err
	}
	annotations, changed := annotate(d.Annotations, wanted)
	if !changed {
		return ctrl.Result{}, nil
	}
	before := d.DeepCopy()
	d.Annotations = annotations
	// The resource version makes the patch fail after a concurrent change.
	if err := r.Client.Patch(ctx, d, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return ctrl.Result{}, fmt.Errorf("annotating MachineDeployment: %w", err)
	}
	return ctrl.Result{}, nil
}

// wanted returns the annotations to write, and whether they are known. Without
// a node group there are none.
func (r *Reconciler) wanted(ctx context.Context, d *clusterv1.MachineDeployment) (wanted map[string]string, known bool, err error) {
	if !isNodeGroup(d) {
		return nil, true, nil
	}
	template := &bootstrapv1.NovaConfigTemplate{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: deployments.TemplateOf(&d.Spec.Template.Spec)}, template)
	if apierrors.IsNotFound(err) {
		return nil, false, nil // its creation triggers a reconcile
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading NovaConfigTemplate: %w", err)
	}
	return expected(d, bootstrap.Worker(&template.Spec.Template.Spec.NodeConfigSpec, d.Spec.Template.Spec.FailureDomain)), true, nil
}

// pauseChanged selects Clusters that were created, paused or unpaused.
func pauseChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isCluster := e.ObjectOld.(*clusterv1.Cluster)
		is, isClusterToo := e.ObjectNew.(*clusterv1.Cluster)
		return isCluster && isClusterToo &&
			(ptr.Deref(was.Spec.Paused, false) != ptr.Deref(is.Spec.Paused, false) || !maps.Equal(was.Annotations, is.Annotations))
	}}
}
