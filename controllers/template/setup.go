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

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// SetupWithManager starts reconciling with the manager.
func (r *Reconciler[T]) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	gvk, err := apiutil.GVKForObject(r.New(), mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("finding kind of template: %w", err)
	}
	name := strings.ToLower(gvk.Kind)
	reconcile.SetDefaults(mgr, name, &r.Client, nil, &r.Recorder)
	list, err := reconcile.ListFor(mgr.GetScheme(), r.New())
	if err != nil {
		return err
	}
	mapper := templateMapper{reader: r.Client, kind: gvk.GroupKind(), templates: list}
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(r.New(), builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		WithOptions(reconcile.Options(options)).
		Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(mapper.ofDeployment),
			builder.WithPredicates(templateChanged)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapper.inNamespace),
			builder.WithPredicates(clusterAppeared)).
		Watches(r.InfraCluster, handler.EnqueueRequestsFromMapFunc(mapper.inNamespace),
			builder.WithPredicates(infraClusterRecovered)).
		Complete(r)
}

// templateMapper maps an object to the templates whose size depends on it.
type templateMapper struct {
	reader    client.Reader
	kind      schema.GroupKind
	templates client.ObjectList
}

// ofDeployment maps a MachineDeployment to its infrastructure template.
func (m *templateMapper) ofDeployment(_ context.Context, o client.Object) []ctrl.Request {
	d, ok := o.(*clusterv1.MachineDeployment)
	if !ok || !usesTemplate(d, m.kind) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{
		Namespace: d.Namespace, Name: d.Spec.Template.Spec.InfrastructureRef.Name,
	}}}
}

// inNamespace maps an object to all templates of its namespace, because only
// the reconcile of a template finds out which cluster uses it.
func (m *templateMapper) inNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	found, err := reconcile.Select(ctx, m.reader, m.templates, o.GetNamespace())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping to templates")
	}
	return reconcile.Requests(found)
}

func usesTemplate(d *clusterv1.MachineDeployment, kind schema.GroupKind) bool {
	ref := d.Spec.Template.Spec.InfrastructureRef
	return ref.Kind == kind.Kind && ref.APIGroup == kind.Group
}

// The predicates below use named functions. Function literals would become part
// of the generic method, and Go 1.26 mixes them up if two packages use the
// method for types of the same shape and inline it differently.

// templateChanged selects MachineDeployments that are new or that use another
// template.
var templateChanged = predicate.Funcs{UpdateFunc: deploymentChanged, DeleteFunc: reconcile.IgnoreDelete}

func deploymentChanged(e event.UpdateEvent) bool {
	was, isDeployment := e.ObjectOld.(*clusterv1.MachineDeployment)
	is, isDeploymentToo := e.ObjectNew.(*clusterv1.MachineDeployment)
	return isDeployment && isDeploymentToo && was.Spec.Template.Spec.InfrastructureRef != is.Spec.Template.Spec.InfrastructureRef
}

// clusterAppeared selects Clusters that are new or were unpaused.
var clusterAppeared = predicate.Funcs{UpdateFunc: clusterResumed, DeleteFunc: reconcile.IgnoreDelete}

func clusterResumed(e event.UpdateEvent) bool {
	was, isCluster := e.ObjectOld.(*clusterv1.Cluster)
	is, isClusterToo := e.ObjectNew.(*clusterv1.Cluster)
	return isCluster && isClusterToo && paused(was) && !paused(is)
}

func paused(c *clusterv1.Cluster) bool { return c.Spec.Paused != nil && *c.Spec.Paused }

// infraClusterRecovered selects changes that can change a size: the hypervisor
// is available again, or the settings changed.
var infraClusterRecovered = predicate.Funcs{UpdateFunc: infraClusterChanged, DeleteFunc: reconcile.IgnoreDelete}

func infraClusterChanged(e event.UpdateEvent) bool {
	return reconcile.ConditionChanged(e.ObjectOld, e.ObjectNew, infrav1.HypervisorAvailableCondition) ||
		e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		e.ObjectOld.GetLabels()[clusterv1.ClusterNameLabel] != e.ObjectNew.GetLabels()[clusterv1.ClusterNameLabel]
}
