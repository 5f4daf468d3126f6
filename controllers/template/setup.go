package template

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// SetupWithManager starts reconciling with the manager.
func (r *Reconciler[T]) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	gvk, err := apiutil.GVKForObject(r.New(), mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("finding kind of template: %w", err)
	}
	name := strings.ToLower(gvk.Kind)
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder(name)
	}
	list, err := loop.ListFor(mgr.GetScheme(), r.New())
	if err != nil {
		return err
	}
	asking := askers{reader: r.Client, kind: gvk.GroupKind(), templates: list}
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(r.New(), builder.WithPredicates(loop.IgnoreOwnStatus())).
		WithOptions(loop.Options(options)).
		Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(asking.ofDeployment),
			builder.WithPredicates(makesOther)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(asking.inNamespace),
			builder.WithPredicates(clusterAppeared)).
		Watches(r.InfraCluster, handler.EnqueueRequestsFromMapFunc(asking.inNamespace),
			builder.WithPredicates(infraClusterMended)).
		Complete(r)
}

// askers finds the templates whose size another object can change.
type askers struct {
	reader    client.Reader
	kind      schema.GroupKind
	templates client.ObjectList
}

// ofDeployment maps a MachineDeployment to the template it makes machines from.
func (a *askers) ofDeployment(_ context.Context, o client.Object) []reconcile.Request {
	d, ok := o.(*clusterv1.MachineDeployment)
	if !ok || !makesFrom(d, a.kind) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{
		Namespace: d.Namespace, Name: d.Spec.Template.Spec.InfrastructureRef.Name,
	}}}
}

// inNamespace maps an object to the templates beside it: which of them are for
// it is known only to each.
func (a *askers) inNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	found, err := loop.Select(ctx, a.reader, a.templates, o.GetNamespace())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping to templates")
	}
	return loop.Requests(found)
}

func makesFrom(d *clusterv1.MachineDeployment, kind schema.GroupKind) bool {
	ref := d.Spec.Template.Spec.InfrastructureRef
	return ref.Kind == kind.Kind && ref.APIGroup == kind.Group
}

// The predicates below are made of named functions. Literals would become part
// of the generic method, and Go 1.26 confuses those when two packages use the
// method for types of one shape and inline it differently.

// makesOther lets through MachineDeployments that are new or make machines
// from another template.
var makesOther = predicate.Funcs{UpdateFunc: deploymentChanged, DeleteFunc: loop.IgnoreDelete}

func deploymentChanged(e event.UpdateEvent) bool {
	was, isDeployment := e.ObjectOld.(*clusterv1.MachineDeployment)
	is, isDeploymentToo := e.ObjectNew.(*clusterv1.MachineDeployment)
	return isDeployment && isDeploymentToo && was.Spec.Template.Spec.InfrastructureRef != is.Spec.Template.Spec.InfrastructureRef
}

// clusterAppeared lets through Clusters that are new or go on after a pause.
var clusterAppeared = predicate.Funcs{UpdateFunc: clusterResumed, DeleteFunc: loop.IgnoreDelete}

func clusterResumed(e event.UpdateEvent) bool {
	was, isCluster := e.ObjectOld.(*clusterv1.Cluster)
	is, isClusterToo := e.ObjectNew.(*clusterv1.Cluster)
	return isCluster && isClusterToo && paused(was) && !paused(is)
}

func paused(c *clusterv1.Cluster) bool { return c.Spec.Paused != nil && *c.Spec.Paused }

// infraClusterMended lets through what can make a size known, or another one:
// the hypervisor came back, or the settings changed.
var infraClusterMended = predicate.Funcs{UpdateFunc: infraClusterChanged, DeleteFunc: loop.IgnoreDelete}

func infraClusterChanged(e event.UpdateEvent) bool {
	return loop.ConditionChanged(e.ObjectOld, e.ObjectNew, infrav1.HypervisorAvailableCondition) ||
		e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		e.ObjectOld.GetLabels()[clusterv1.ClusterNameLabel] != e.ObjectNew.GetLabels()[clusterv1.ClusterNameLabel]
}
