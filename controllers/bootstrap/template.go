package bootstrap

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// TemplateReconciler allows workers to boot while their control plane is initialized for the first
// time: it skips the one preflight check of MachineSets that blocks them, and restores it once the
// control plane is initialized.
type TemplateReconciler struct {
	// Client reads through the cache and writes. Defaults to the manager's client.
	Client client.Client
	// WatchFilterValue limits the templates to those with this watch label. If not set, all templates
	// are reconciled.
	WatchFilterValue string
}

// SetupWithManager starts the controller with the manager.
func (r *TemplateReconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("novaconfigtemplate").
		For(&bootstrapv1.NovaConfigTemplate{}).
		WithOptions(reconcile.Options(options)).
		Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(fromUser), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.MachineSet{}, handler.EnqueueRequestsFromMapFunc(fromUser), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.fromCluster), builder.WithPredicates(controlPlaneChanged())).
		Complete(r)
}

// Reconcile skips the check for one template or restores it.
func (r *TemplateReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template := &bootstrapv1.NovaConfigTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(template, r.WatchFilterValue) || annotations.HasPaused(template) || !template.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	users, err := r.users(ctx, template)
	if err != nil {
		return ctrl.Result{}, err
	}
	clusters := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(template.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing Clusters: %w", err)
	}
	var up, around []bool
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		been, err := r.wasInitialized(ctx, cluster)
		if err != nil {
			return ctrl.Result{}, err
		}
		around = append(around, been)
		if slices.Contains(users, cluster.Name) {
			up = append(up, been)
		}
	}
	// The template of a ClusterClass is not used for machines directly: it is copied, with its
	// annotations, into the templates that are.
	base := util.HasOwner(template.OwnerReferences, clusterv1.GroupVersion.String(), []string{"ClusterClass"})
	wanted, changed := annotate(template.Annotations, !base && skipsCheck(up, around))
	if !changed {
		return ctrl.Result{}, nil
	}
	before := template.DeepCopy()
	template.Annotations = wanted
	// The patch contains the resource version, so that a concurrent change by a user is not
	// overwritten.
	if err := r.Client.Patch(ctx, template, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return ctrl.Result{}, fmt.Errorf("annotating NovaConfigTemplate: %w", err)
	}
	return ctrl.Result{}, nil
}

// users returns the names of the clusters whose workers are created from the template.
func (r *TemplateReconciler) users(ctx context.Context, template *bootstrapv1.NovaConfigTemplate) ([]string, error) {
	deployments, sets := &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}
	for _, list := range []client.ObjectList{deployments, sets} {
		if err := r.Client.List(ctx, list, client.InNamespace(template.Namespace)); err != nil {
			return nil, fmt.Errorf("listing users of NovaConfigTemplate: %w", err)
		}
	}
	var names []string
	for i := range deployments.Items {
		if uses(&deployments.Items[i].Spec.Template.Spec, template.Name) {
			names = append(names, deployments.Items[i].Spec.ClusterName)
		}
	}
	for i := range sets.Items {
		if uses(&sets.Items[i].Spec.Template.Spec, template.Name) {
			names = append(names, sets.Items[i].Spec.ClusterName)
		}
	}
	return names, nil
}

// wasInitialized reports whether the cluster's control plane has ever been initialized. A move drops
// the status, but keeps the init lock.
func (r *TemplateReconciler) wasInitialized(ctx context.Context, cluster *clusterv1.Cluster) (bool, error) {
	if ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true, nil
	}
	initialized, err := initlock.Initialized(ctx, r.Client, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return false, fmt.Errorf("reading init lock: %w", err)
	}
	return initialized, nil
}

func uses(spec *clusterv1.MachineSpec, template string) bool {
	return templateOf(spec) == template
}

// templateOf returns the name of the NovaConfigTemplate from which machines are created, or an empty
// string if it is another kind.
func templateOf(spec *clusterv1.MachineSpec) string {
	ref := spec.Bootstrap.ConfigRef
	if ref.Kind != "NovaConfigTemplate" || ref.APIGroup != bootstrapv1.GroupVersion.Group {
		return ""
	}
	return ref.Name
}

func fromUser(_ context.Context, o client.Object) []ctrl.Request {
	name := ""
	switch user := o.(type) {
	case *clusterv1.MachineDeployment:
		name = templateOf(&user.Spec.Template.Spec)
	case *clusterv1.MachineSet:
		name = templateOf(&user.Spec.Template.Spec)
	}
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}

// fromCluster returns all templates of the namespace: an initialized cluster also affects templates
// that no cluster uses yet.
func (r *TemplateReconciler) fromCluster(ctx context.Context, o client.Object) []ctrl.Request {
	found, err := reconcile.Select(ctx, r.Client, &bootstrapv1.NovaConfigTemplateList{}, o.GetNamespace())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping to NovaConfigTemplates")
	}
	return reconcile.Requests(found)
}

// controlPlaneChanged passes Clusters that are created, deleted or initialized.
func controlPlaneChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isCluster := e.ObjectOld.(*clusterv1.Cluster)
		is, isClusterToo := e.ObjectNew.(*clusterv1.Cluster)
		return isCluster && isClusterToo && ptr.Deref(was.Status.Initialization.ControlPlaneInitialized, false) !=
			ptr.Deref(is.Status.Initialization.ControlPlaneInitialized, false)
	}}
}
