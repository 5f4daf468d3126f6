package puppet

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// controllerName is the name of the controller and of its watch.
const controllerName = "novaconfig-puppet"

// Reconciler sets the condition ConfigurationApplied of Machines.
type Reconciler struct {
	// Client reads through the cache and writes. Defaults to the manager's client.
	Client client.Client
	// WorkloadClusters connects to the workload clusters.
	WorkloadClusters clustercache.ClusterCache
	// Fence leaves the Machines of another management cluster alone.
	Fence fence.Fence
	// WatchFilterValue limits the Machines to those with this watch label. If not set,
	// all are reconciled.
	WatchFilterValue string

	watcher clustercache.SourceWatcher[ctrl.Request]
}

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	reconcile.SetDefaults(mgr, "novaconfig", &r.Client, nil, nil)
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&clusterv1.Machine{}, builder.WithPredicates(machineChanged())).
		WithOptions(reconcile.Options(options)).
		WatchesRawSource(r.WorkloadClusters.GetClusterSource(controllerName, r.machines)).
		Build(r)
	if err != nil {
		return fmt.Errorf("adding controller of the condition %s: %w", bootstrapv1.ConfigurationAppliedCondition, err)
	}
	r.watcher = c
	return nil
}

// machines returns the Machines of a Cluster.
func (r *Reconciler) machines(ctx context.Context, cluster client.Object) []ctrl.Request {
	found, err := reconcile.Select(ctx, r.Client, &clusterv1.MachineList{}, cluster.GetNamespace(), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping to Machines")
	}
	return reconcile.Requests(found)
}

// machineChanged passes Machines whose Node is now known, and those whose condition
// another client changed.
func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isMachine := e.ObjectOld.(*clusterv1.Machine)
		is, isMachineToo := e.ObjectNew.(*clusterv1.Machine)
		return isMachine && isMachineToo && (was.Status.NodeRef != is.Status.NodeRef ||
			reconcile.ConditionChanged(was, is, bootstrapv1.ConfigurationAppliedCondition))
	}}
}

// Reconcile copies the condition of one Node.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(ctx, req.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(machine, r.WatchFilterValue) || !machine.DeletionTimestamp.IsZero() || !machine.Status.NodeRef.IsDefined() {
		return ctrl.Result{}, nil
	}
	cluster, err := r.cluster(ctx, machine)
	if err != nil || cluster == nil {
		return ctrl.Result{}, err
	}
	node, err := r.node(ctx, cluster, machine)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the next connection triggers a reconcile
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, machine, machineCondition(node))
}

// cluster returns the Cluster of a Machine whose node Puppet configures, or nil.
func (r *Reconciler) cluster(ctx context.Context, machine *clusterv1.Machine) (*clusterv1.Cluster, error) {
	ref := machine.Spec.Bootstrap.ConfigRef
	if !bootstrapv1.IsNovaConfig(ref) {
		return nil, nil //nolint:nilnil // described above
	}
	config := &bootstrapv1.NovaConfig{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}, config); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // it names the object
	}
	if !controllerutil.ContainsFinalizer(config, bootstrapv1.PuppetFinalizer) {
		return nil, nil //nolint:nilnil // described above
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // it names the object
	}
	if annotations.IsPaused(cluster, machine) {
		return nil, nil //nolint:nilnil // described above
	}
	if err := joining.Allowed(ctx, r.Client, r.Fence, cluster); err != nil {
		if fence.IsOther(err) {
			return nil, nil //nolint:nilnil // described above
		}
		return nil, err
	}
	return cluster, nil
}

// node reads the Node of a Machine, and watches the Nodes of its cluster. It is nil if
// the Machine has none of its own.
func (r *Reconciler) node(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (*corev1.Node, error) {
	key := client.ObjectKeyFromObject(cluster)
	err := r.WorkloadClusters.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name: controllerName, Watcher: r.watcher, Kind: &corev1.Node{}, Predicates: []predicate.Predicate{nodeChanged()},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: key.Namespace, Name: o.GetName()}}}
		}),
	}))
	if err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	workload, err := r.WorkloadClusters.GetReader(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	node, err := nodesettings.NodeOf(ctx, workload, machine)
	if apierrors.IsNotFound(err) || errors.Is(err, nodesettings.ErrOtherNode) {
		return nil, nil //nolint:nilnil // described above
	}
	return node, err //nolint:wrapcheck // it names the Node
}

// nodeChanged passes changes of the condition of a Node.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isNode := e.ObjectOld.(*corev1.Node)
		is, isNodeToo := e.ObjectNew.(*corev1.Node)
		return isNode && isNodeToo && machineCondition(was) != machineCondition(is)
	}}
}

// report sets the condition of a Machine.
func (r *Reconciler) report(ctx context.Context, machine *clusterv1.Machine, condition metav1.Condition) error {
	helper, err := patch.NewHelper(machine, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	conditions.Set(machine, condition)
	if err := helper.Patch(ctx, machine, patch.WithOwnedConditions{Conditions: []string{condition.Type}}); err != nil {
		return fmt.Errorf("patching Machine: %w", err)
	}
	return nil
}
