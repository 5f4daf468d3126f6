package machine

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
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
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// SetupWithManager starts the controller with the manager. It does not use Cluster API's own builder,
// whose rate limiter delays retries for up to a quarter of an hour. That is too long after a cause
// outside the cluster has been fixed.
func (r *Reconciler[M]) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	gvk, err := apiutil.GVKForObject(r.New(), mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("finding kind of machine: %w", err)
	}
	name := strings.ToLower(gvk.Kind)
	reconcile.SetDefaults(mgr, name, &r.Client, &r.APIReader, &r.Recorder)
	if r.Resolver == nil {
		r.Resolver = net.DefaultResolver
	}
	list, err := reconcile.ListFor(mgr.GetScheme(), r.New())
	if err != nil {
		return err
	}
	fromCluster, err := util.ClusterToTypedObjectsMapper(r.Client, list, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to machines: %w", err)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", name)
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(r.New(), builder.WithPredicates(predicate.Or(reconcile.IgnoreOwnStatus(), published))).
		WithOptions(reconcile.Options(options)).
		Watches(r.New(), reconcile.DeletionsFirst(), builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		Watches(&ipamv1.IPAddressClaim{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), r.New(), handler.OnlyControllerOwner())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(gvk)),
			builder.WithPredicates(relevantMachineChange)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(fromCluster),
			builder.WithPredicates(predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(mgr.GetScheme(), log))).
		Watches(r.InfraCluster, handler.EnqueueRequestsFromMapFunc(reconcile.Siblings(r.Client, list)),
			builder.WithPredicates(infraClusterRecovered)).
		WatchesRawSource(reconcile.Keys(r.Connector.Changes(), r.eventPriority)).
		Complete(r)
}

// eventPriority returns the queue priority of a driver event: deletions go before creations. It reads
// from the cache, so it costs no request.
func (r *Reconciler[M]) eventPriority(ctx context.Context, key hypervisor.Key) int {
	o := r.New()
	if err := r.Client.Get(ctx, client.ObjectKey(key), o); err != nil || o.GetDeletionTimestamp().IsZero() {
		return reconcile.DefaultPriority
	}
	return reconcile.DeletionPriority
}

// The predicates below consist of named functions. Function literals would become part of the generic
// method, and Go 1.26 confuses them when two packages use the method for types of one shape and inline
// it differently.

// published passes a VM's reported state after it is written: a reconcile that read an older copy may
// have assumed that it was written before.
var published = predicate.Funcs{
	CreateFunc: reconcile.IgnoreCreate, UpdateFunc: reportChanged, DeleteFunc: reconcile.IgnoreDelete,
}

func reportChanged(e event.UpdateEvent) bool {
	was, isMachine := e.ObjectOld.(Object)
	is, isMachineToo := e.ObjectNew.(Object)
	if !isMachine || !isMachineToo {
		return false
	}
	_, before := was.Common()
	_, after := is.Common()
	return before.Host != after.Host || before.FailureDomain != after.FailureDomain || !slices.Equal(before.Addresses, after.Addresses) ||
		!reflect.DeepEqual(before.NetworkInterfaces, after.NetworkInterfaces)
}

// relevantMachineChange passes the changes of a Machine that a VM waits for: the Machine itself, its
// bootstrap data Secret, the failure domain, and that its node has joined.
var relevantMachineChange = predicate.Funcs{UpdateFunc: machineChanged, DeleteFunc: reconcile.IgnoreDelete}

func machineChanged(e event.UpdateEvent) bool {
	was, isMachine := e.ObjectOld.(*clusterv1.Machine)
	is, isMachineToo := e.ObjectNew.(*clusterv1.Machine)
	return isMachine && isMachineToo &&
		(ptr.Deref(was.Spec.Bootstrap.DataSecretName, "") != ptr.Deref(is.Spec.Bootstrap.DataSecretName, "") ||
			was.Spec.FailureDomain != is.Spec.FailureDomain ||
			was.Status.NodeRef != is.Status.NodeRef)
}

// infraClusterRecovered passes the changes of an infrastructure cluster that can end the failure of its
// machines: the hypervisor became available, the settings changed, or the cluster got its ID.
var infraClusterRecovered = predicate.Funcs{
	CreateFunc: reconcile.IgnoreCreate, UpdateFunc: infraClusterChanged, DeleteFunc: reconcile.IgnoreDelete,
}

func infraClusterChanged(e event.UpdateEvent) bool {
	return reconcile.ConditionChanged(e.ObjectOld, e.ObjectNew, infrav1.HypervisorAvailableCondition) ||
		reconcile.ConditionChanged(e.ObjectOld, e.ObjectNew, fence.ConditionType) ||
		e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		differ(e, infrav1.ClusterIDAnnotation) || differ(e, infrav1.HypervisorIDAnnotation)
}

func differ(e event.UpdateEvent, annotation string) bool {
	return e.ObjectOld.GetAnnotations()[annotation] != e.ObjectNew.GetAnnotations()[annotation]
}
