package modules

import (
	"context"
	"fmt"
	"slices"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/facts"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// eventQueueSize is the number of events that one reconciler may send to the other before it has to
// wait.
const eventQueueSize = 1024

const (
	setController     = "novamoduleset"
	clusterController = "novamoduleset-cluster"
)

// +kubebuilder:rbac:groups=addons.cluster.x-k8s.io,resources=novamodulesets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=addons.cluster.x-k8s.io,resources=novamodulesets/status,verbs=patch
// +kubebuilder:rbac:groups=addons.cluster.x-k8s.io,resources=novamodulesets/finalizers,verbs=update
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments;machinepools;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io;controlplane.cluster.x-k8s.io;bootstrap.cluster.x-k8s.io,resources=*,verbs=get;list;watch
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories;helmrepositories,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds both reconcilers to mgr.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, sets *SetReconciler, clusters *ClusterReconciler, options controller.Options) error {
	shared := &rolloutState{}
	sets.rollouts, clusters.rollouts = shared, shared
	sets.clusters = make(chan event.GenericEvent, eventQueueSize)
	clusters.sets = make(chan event.GenericEvent, eventQueueSize)
	if err := sets.setup(mgr, clusters.sets, options); err != nil {
		return fmt.Errorf("setting up controller of sets: %w", err)
	}
	if err := clusters.setup(ctx, mgr, sets.clusters, options); err != nil {
		return fmt.Errorf("setting up controller of Clusters: %w", err)
	}
	return nil
}

func (r *SetReconciler) setup(mgr ctrl.Manager, reports <-chan event.GenericEvent, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(setController).
		For(&addonsv1.NovaModuleSet{}, builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.setsOf), builder.WithPredicates(specOrMetadataChanged)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.setsInto), builder.WithPredicates(metadataChanged)).
		Watches(&addonsv1.NovaModuleSet{}, handler.EnqueueRequestsFromMapFunc(r.setsBeside), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(reports, &handler.EnqueueRequestForObject{})).
		WithOptions(reconcile.Options(options)).
		Complete(r)
}

func (r *ClusterReconciler) setup(_ context.Context, mgr ctrl.Manager, reports <-chan event.GenericEvent, options controller.Options) error {
	r.apiReader = mgr.GetAPIReader()
	r.flux = flux.NewWriter(r.Client)
	r.facts = facts.Reader{Client: r.Client, Objects: r.Objects}
	return ctrl.NewControllerManagedBy(mgr).
		Named(clusterController).
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicate.Or(specOrMetadataChanged, controlPlaneInitialized))).
		Watches(&addonsv1.NovaModuleSet{}, handler.EnqueueRequestsFromMapFunc(r.clustersOf), builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(byLabel), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(byLabel), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(byLabel), builder.WithPredicates(machineChanged)).
		Watches(&controlplanev1.NovaControlPlane{}, handler.EnqueueRequestsFromMapFunc(byLabel), builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		WatchesRawSource(r.fluxSource(mgr, &helmv2.HelmRelease{})).
		WatchesRawSource(r.fluxSource(mgr, &kustomizev1.Kustomization{})).
		WatchesRawSource(r.fetched(mgr, &sourcev1.GitRepository{})).
		WatchesRawSource(r.fetched(mgr, &sourcev1.OCIRepository{})).
		WatchesRawSource(r.fetched(mgr, &sourcev1.HelmRepository{})).
		WatchesRawSource(r.WorkloadClusters.Source(clusterController, toItself)).
		WatchesRawSource(source.Channel(reports, &handler.EnqueueRequestForObject{})).
		WithOptions(reconcile.Options(options)).
		Complete(r)
}

// fluxSource returns a source of the Flux objects that the manager wrote.
func (r *ClusterReconciler) fluxSource(mgr ctrl.Manager, kind client.Object) source.Source {
	return flux.DeferredSource(r.Client, kind, source.Kind(mgr.GetCache(), kind, handler.EnqueueRequestsFromMapFunc(clusterOf)))
}

// fetched returns a source of the Clusters that may continue when Flux has fetched a source of a set.
func (r *ClusterReconciler) fetched(mgr ctrl.Manager, kind client.Object) source.Source {
	return flux.DeferredSource(r.Client, kind, source.Kind(mgr.GetCache(), kind, handler.EnqueueRequestsFromMapFunc(r.clustersBeside), flux.SourceFetched))
}

// clustersBeside maps a source to the Clusters of its namespace, which share it.
func (r *ClusterReconciler) clustersBeside(ctx context.Context, o client.Object) []ctrl.Request {
	if o.GetLabels()[addonsv1.SetLabel] == "" {
		return nil
	}
	list := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping source to Clusters")
		return nil
	}
	out := make([]ctrl.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// specOrMetadataChanged passes changes that decide whether and how a set applies to a Cluster.
var specOrMetadataChanged = reconcile.IgnoreOwnStatus()

// metadataChanged passes changes of labels and annotations.
var metadataChanged = predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// controlPlaneInitialized passes a control plane that was initialized.
var controlPlaneInitialized = predicate.Funcs{
	CreateFunc: reconcile.IgnoreCreate, DeleteFunc: reconcile.IgnoreDelete,
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, isCluster := e.ObjectOld.(*clusterv1.Cluster)
		is, isClusterToo := e.ObjectNew.(*clusterv1.Cluster)
		return isCluster && isClusterToo &&
			(was.Status.Initialization.ControlPlaneInitialized == nil) != (is.Status.Initialization.ControlPlaneInitialized == nil)
	},
}

// machineChanged passes Machines that got or lost a node, that are being deleted, or whose addresses
// changed.
var machineChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, isMachine := e.ObjectOld.(*clusterv1.Machine)
		is, isMachineToo := e.ObjectNew.(*clusterv1.Machine)
		return isMachine && isMachineToo && (was.Status.NodeRef.IsDefined() != is.Status.NodeRef.IsDefined() ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
			!slices.Equal(facts.InternalAddresses(was.Status.Addresses), facts.InternalAddresses(is.Status.Addresses)))
	},
}

// clusterOf maps a Flux object to its Cluster.
func clusterOf(_ context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[addonsv1.ClusterLabel]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key{Namespace: o.GetNamespace(), Name: name}}}
}

// byLabel maps an object to the Cluster that it belongs to.
func byLabel(_ context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key{Namespace: o.GetNamespace(), Name: name}}}
}

func toItself(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// setsOf maps a Cluster to the sets that may select it, and to those that know it. An update is mapped
// in its old and its new state.
func (r *SetReconciler) setsOf(ctx context.Context, o client.Object) []ctrl.Request {
	cluster := client.ObjectKeyFromObject(o)
	return r.mapTo(ctx, func(set *addonsv1.NovaModuleSet) bool {
		if _, known := r.rollouts.getReport(client.ObjectKeyFromObject(set), cluster); known {
			return true
		}
		if !maySelect(set, cluster.Namespace) {
			return false
		}
		wanted, err := matches(set.Spec.ClusterSelector, o.GetLabels())
		return wanted || err != nil
	})
}

// setsInto maps a Namespace to the sets of other namespaces that may select
// Clusters in it.
func (r *SetReconciler) setsInto(ctx context.Context, o client.Object) []ctrl.Request {
	return r.mapTo(ctx, func(set *addonsv1.NovaModuleSet) bool {
		return set.Namespace != o.GetName() && maySelect(set, o.GetName())
	})
}

// setsBeside maps a set to the sets of its namespace that may be part of a dependency cycle with it.
func (r *SetReconciler) setsBeside(ctx context.Context, o client.Object) []ctrl.Request {
	return r.mapTo(ctx, func(set *addonsv1.NovaModuleSet) bool {
		return set.Namespace == o.GetNamespace() && set.Name != o.GetName() && len(set.Spec.DependsOn) > 0
	})
}

func (r *SetReconciler) mapTo(ctx context.Context, wanted func(*addonsv1.NovaModuleSet) bool) []ctrl.Request {
	list := &addonsv1.NovaModuleSetList{}
	// Sets are large, and no code changes them here.
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping to NovaModuleSets")
		return nil
	}
	var out []ctrl.Request
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// clustersOf maps a set to the Clusters that it may select and to those that have objects of the set.
func (r *ClusterReconciler) clustersOf(ctx context.Context, o client.Object) []ctrl.Request {
	set, ok := o.(*addonsv1.NovaModuleSet)
	if !ok {
		return nil
	}
	found := map[key]bool{}
	all, _, err := candidates(ctx, r.Client, set)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping NovaModuleSet to Clusters")
	}
	for i := range all {
		found[client.ObjectKeyFromObject(&all[i])] = true
	}
	left, err := flux.CountObjects(ctx, r.Client, client.ObjectKeyFromObject(set))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping NovaModuleSet to Clusters")
	}
	for cluster := range left {
		found[cluster] = true
	}
	out := make([]ctrl.Request, 0, len(found))
	for cluster := range found {
		out = append(out, ctrl.Request{NamespacedName: cluster})
	}
	return out
}
