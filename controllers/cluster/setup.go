package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// SetupWithManager starts the controller with the manager.
func (r *Reconciler[C]) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	gvk, err := apiutil.GVKForObject(r.New(), mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("finding kind of cluster: %w", err)
	}
	name := strings.ToLower(gvk.Kind)
	reconcile.SetDefaults(mgr, name, &r.Client, &r.APIReader, &r.Recorder)
	r.kind = gvk.Kind
	if r.clusters, err = reconcile.ListFor(mgr.GetScheme(), r.New()); err != nil {
		return err
	}
	machine, err := machineOf(mgr, r.NewMachineList())
	if err != nil {
		return err
	}
	mapper := credentialsMapper[C]{reader: r.Client, clusters: r.clusters, identity: r.Identity, namespace: r.ManagerNamespace}
	fromCluster := util.ClusterToInfrastructureMapFunc(ctx, gvk, r.Client, r.New())
	b := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(r.New(), builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		WithOptions(reconcile.Options(options)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(fromCluster),
			builder.WithPredicates(relevantClusterChange)).
		Watches(machine, handler.EnqueueRequestsFromMapFunc(reconcile.Siblings(r.Client, r.clusters)),
			builder.WithPredicates(deleted)).
		Watches(r.New(), reconcile.DeletionsFirst(), builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		WatchesRawSource(reconcile.Keys(r.Inspector.EndpointChanges(), reconcile.SamePriority))
	if r.NewIdentity != nil {
		if err := mapper.addIdentityKind(mgr.GetScheme(), r.NewIdentity()); err != nil {
			return err
		}
		b.Watches(r.NewIdentity(), handler.EnqueueRequestsFromMapFunc(mapper.ofIdentity),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
			Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(mapper.inNamespace),
				builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{}))
	}
	// The events must come from the cache whose versions manager.SecretClient compares, which also
	// holds metadata only. A cache of metadata objects would be a different cache: its event could
	// arrive first, and the driver would read the previous credentials.
	err = b.Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(mapper.ofSecret),
		builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Complete(r)
	if err != nil {
		return err
	}
	var identity client.Object
	if r.NewIdentity != nil {
		identity = r.NewIdentity()
	}
	return (&secretProtector[C]{
		client: r.Client, apiReader: r.APIReader, clusters: r.clusters, identity: r.Identity, mapper: mapper,
		finalizer: infrav1.CredentialsFinalizer(gvk.Kind), manager: name + "-credentials", filter: r.WatchFilterValue,
	}).setupWithManager(mgr, r.New(), identity, options)
}

// machineOf returns an empty machine of the kind that list contains.
func machineOf(mgr ctrl.Manager, list client.ObjectList) (client.Object, error) {
	gvk, err := apiutil.GVKForObject(list, mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("finding kind of machine: %w", err)
	}
	made, err := mgr.GetScheme().New(gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List")))
	if err != nil {
		return nil, fmt.Errorf("making machine: %w", err)
	}
	machine, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("making machine: %T is no object", made)
	}
	return machine, nil
}

// The predicates below consist of named functions. Function literals would become part of the generic
// method, and Go 1.26 confuses them when two packages use the method for types of one shape and inline
// it differently.

// relevantClusterChange passes the Cluster itself and the fields that an infrastructure cluster uses:
// the endpoint, whether it is paused, and which management cluster manages it.
var relevantClusterChange = predicate.Funcs{UpdateFunc: clusterChanged, DeleteFunc: reconcile.IgnoreDelete}

func clusterChanged(e event.UpdateEvent) bool {
	was, isCluster := e.ObjectOld.(*clusterv1.Cluster)
	is, isClusterToo := e.ObjectNew.(*clusterv1.Cluster)
	return isCluster && isClusterToo &&
		(ptr.Deref(was.Spec.Paused, false) != ptr.Deref(is.Spec.Paused, false) ||
			was.Spec.ControlPlaneEndpoint != is.Spec.ControlPlaneEndpoint ||
			fence.Changed(e))
}

// deleted passes the deletion of a machine.
var deleted = predicate.Funcs{CreateFunc: reconcile.IgnoreCreate, UpdateFunc: reconcile.IgnoreUpdate}
