package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/authorities"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/status"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/upgrade"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const controllerName = "novacontrolplane"

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=novacontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=novacontrolplanes/status,verbs=patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=novacontrolplanes/finalizers,verbs=update
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=novaconfigs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=*,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinepools,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;update
// +kubebuilder:rbac:groups=nova-platform.io,resources=kubeconfigs,verbs=write
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconciler reconciles NovaControlPlanes. It is put together from parts: each
// has a few steps of a reconcile, and the state that these steps keep.
type Reconciler struct {
	*scope.Config
	*observer
	*restorer
	*maker
	*machineReporter
	*actor
	*remover

	certificateKeeper *certificates.Keeper
	authorityKeeper   *authorities.Keeper
	upgrader          *upgrade.Upgrader
}

// New returns a Reconciler.
func New(config scope.Config) *Reconciler {
	c := &config
	o := &observer{Config: c, authorityKeeper: &authorities.Keeper{Config: c}}
	m := &maker{Config: c, observer: o}
	return &Reconciler{
		Config: c, observer: o, certificateKeeper: &certificates.Keeper{Config: c}, authorityKeeper: o.authorityKeeper, restorer: &restorer{Config: c, observer: o, maker: m},
		maker: m, machineReporter: &machineReporter{Config: c}, upgrader: &upgrade.Upgrader{Config: c},
		actor:   &actor{Config: c, observer: o, maker: m},
		remover: &remover{Config: c, observer: o, maker: m},
	}
}

// SetupWithManager adds the controller to mgr.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx)
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&controlplanev1.NovaControlPlane{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			// Its own report of a failure must not shorten the backoff.
			reconcile.IgnoreOwnStatus())).
		Owns(&clusterv1.Machine{}, builder.WithPredicates(predicates.ResourceIsChanged(mgr.GetScheme(), log))).
		Owns(&corev1.Secret{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(controlPlaneOf)).
		// A deletion waits for the workers' machines.
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneOfWorker),
			builder.WithPredicates(predicate.Funcs{
				CreateFunc:  func(event.CreateEvent) bool { return false },
				UpdateFunc:  func(event.UpdateEvent) bool { return false },
				GenericFunc: func(event.GenericEvent) bool { return false },
			})).
		Watches(&controlplanev1.NovaEtcdRestore{}, handler.EnqueueRequestsFromMapFunc(controlPlaneOfRestore)).
		WatchesRawSource(r.WorkloadClusters.Source(controllerName, controlPlaneOf)).
		WithOptions(reconcile.Options(options)).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up controller: %w", err)
	}
	r.WorkloadClusters.Notify(c, r.controlPlaneOfCluster)
	return nil
}

// Reconcile brings one control plane a step closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	s := &scope.Scope{ControlPlane: &controlplanev1.NovaControlPlane{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.ControlPlane); err != nil {
		if apierrors.IsNotFound(err) {
			deleteMetrics(req.NamespacedName)
			r.certificateKeeper.Forget(req.NamespacedName)
			r.forgetMoves(req.NamespacedName, nil)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// Events of owned objects bypass the filter of the watch.
	if !reconcile.Watched(s.ControlPlane, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if found, err := r.findCluster(ctx, s); err != nil || !found {
		return ctrl.Result{}, err
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, s.ControlPlane, controlplanev1.Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, s.Cluster, s.ControlPlane); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	if err := r.checkFence(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	p, err := patch.NewHelper(s.ControlPlane, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	defer func() {
		status.Report(s, reterr)
		measure(s)
		err := p.Patch(ctx, s.ControlPlane, patch.WithStatusObservedGeneration{}, status.OwnedConditions)
		if !s.ControlPlane.DeletionTimestamp.IsZero() {
			// The finalizer was the last one.
			err = scope.WithoutGone(err)
		}
		reterr = errors.Join(reterr, err)
	}()
	if err := r.step(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: s.Again}, nil
}

// findCluster finds the Cluster. Without it only a deletion continues.
func (r *Reconciler) findCluster(ctx context.Context, s *scope.Scope) (bool, error) {
	deleting := !s.ControlPlane.DeletionTimestamp.IsZero()
	s.ClusterName = s.ControlPlane.Labels[clusterv1.ClusterNameLabel]
	cluster, err := util.GetOwnerCluster(ctx, r.Client, s.ControlPlane.ObjectMeta)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading Cluster: %w", err)
	}
	if err != nil || cluster == nil {
		for _, ref := range s.ControlPlane.OwnerReferences {
			if ref.Kind == scope.ClusterKind {
				s.ClusterName = ref.Name
			}
		}
		return deleting, nil
	}
	s.Cluster, s.ClusterName = cluster, cluster.Name
	return true, nil
}

// step observes the state, decides, keeps objects in sync as far as the decision
// allows, and carries out its action.
func (r *Reconciler) step(ctx context.Context, s *scope.Scope) error {
	if err := r.observeAll(ctx, s); err != nil {
		return err
	}
	s.Decision = plan.Decide(input.Of(s, r.CurrentTime()))
	if err := r.keep(ctx, s, []upkeep{
		{plan.KeepOwners, r.adoptLock},
		{plan.KeepOwners, r.template},
		{plan.KeepCertificates, r.certificateKeeper.Ensure},
		{plan.KeepCertificates, r.certificateKeeper.QueryExternal},
		{plan.KeepAll, r.authorityKeeper.Rotate},
		{plan.KeepKubeconfig, r.certificateKeeper.KeepKubeconfig},
		{plan.KeepKubeconfig, r.certificateKeeper.KeepUserKubeconfig},
		{plan.KeepAll, r.sync},
		{plan.KeepAll, r.upgrader.ReportAltered},
		{plan.KeepAll, r.reportHealth},
		{plan.KeepAll, r.upgrader.KeepConfiguration},
		{plan.KeepAll, r.upgrader.RequestSnapshot},
		{plan.KeepAll, r.deleteOrphans},
	}); err != nil {
		// The action is not carried out.
		return errors.Join(append(s.Failures, err)...)
	}
	if err := r.act(ctx, s); err != nil {
		return errors.Join(append(s.Failures, err)...)
	}
	err := r.keep(ctx, s, []upkeep{
		{plan.KeepAll, r.deleteOrphanedNodes},
		{plan.KeepAll, r.reportMachines},
		{plan.KeepAll, r.upgrader.SyncAddons},
		// Last: a workload cluster that rejects an eviction must not block
		// anything else.
		{plan.KeepAll, r.upgrader.SpreadCoreDNS},
	})
	return errors.Join(append(s.Failures, err)...)
}

// upkeep keeps something in sync with the spec, if a decision allows it.
type upkeep struct {
	needs plan.Upkeep
	do    func(context.Context, *scope.Scope) error
}

// keep keeps objects in sync as far as the decision allows. The later ones and
// the action depend on the earlier ones, so an error ends it.
func (r *Reconciler) keep(ctx context.Context, s *scope.Scope, all []upkeep) error {
	for _, k := range all {
		if s.Decision.Upkeep < k.needs {
			continue
		}
		if err := k.do(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// observeAll observes all facts of the decision. It writes only that the control
// plane was initialized.
func (r *Reconciler) observeAll(ctx context.Context, s *scope.Scope) error {
	if err := r.observe(ctx, s); err != nil {
		return err
	}
	if s.Fenced != nil {
		s.Requirements.Fenced = cmp.Or(fence.Condition(s.Fenced).Message, s.Fenced.Error())
	}
	if s.Requirements.Deleting = !s.ControlPlane.DeletionTimestamp.IsZero(); s.Requirements.Deleting {
		if s.Fenced != nil {
			return nil //nolint:nilerr // It is a fact of the decision, which the condition Fenced reports.
		}
		return r.observeWorkers(ctx, s)
	}
	// Until the initialization is recorded, a second kubeadm init is possible.
	if err := r.initialization(ctx, s); err != nil || s.Fenced != nil {
		return err
	}
	s.Requirements.EndpointMissing = !s.Cluster.Spec.ControlPlaneEndpoint.IsValid()
	if !s.Initialized {
		// After a move to another management cluster the status of the
		// infrastructure is set later, while the machines keep running.
		ready := s.Cluster.Status.Initialization.InfrastructureProvisioned
		s.Requirements.InfrastructureMissing = ready == nil || !*ready
	}
	if !s.Requirements.InfrastructureMissing {
		if err := errors.Join(r.certificateKeeper.ObserveFormer(ctx, s), r.certificateKeeper.ObserveExternal(ctx, s)); err != nil {
			return err
		}
	}
	upgrade.ObserveSnapshot(s)
	if !s.Requirements.RestoresUnknown {
		if err := r.observeRestore(ctx, s, r.Client); err != nil {
			restoresUnknown(s, err)
		}
	}
	return nil
}

// holdsUncached reads the facts of the decision again without caches, and reports
// whether the same objects are to be kept in sync. If not, it requests another
// reconcile.
func (r *Reconciler) holdsUncached(ctx context.Context, s *scope.Scope) (bool, error) {
	was, read := s.Initialized, s.Decision
	if err := r.readUncached(ctx, s, read); err != nil {
		return false, err
	}
	d := plan.Decide(input.Of(s, r.CurrentTime()))
	if s.Initialized == was && d.Upkeep == read.Upkeep && (d.Action != plan.CreateForRestore || d.Action == read.Action) {
		return true, nil
	}
	// Objects were kept in sync with old values, or the API server was not probed
	// before a second control plane.
	s.Decision = d
	s.Decision.Upkeep = plan.KeepNothing
	s.RequeueAfter(timelimits.NextAction)
	return false, nil
}

// act carries out the one action and requests another reconcile. Creations of
// machines and the init are carried out in one reconcile: all machines of a new
// control plane boot while the first of them initializes it.
func (r *Reconciler) act(ctx context.Context, s *scope.Scope) error {
	sure := false
	for range actsAtOnce {
		s.Decision = plan.Decide(input.Of(s, r.CurrentTime()))
		if !acts(s.Decision) && (sure || !s.Decision.MovesEndpoint) {
			break
		}
		if !sure {
			// The caches may be old, and the action cannot be undone.
			var err error
			if sure, err = r.holdsUncached(ctx, s); err != nil || !sure {
				return err
			}
			continue
		}
		switch s.Decision.Upkeep {
		case plan.KeepNothing:
			return countFailed(s.Decision.Action, r.carryOutDeletion(ctx, s, s.Decision))
		case plan.KeepKubeconfig:
			s.RequeueAfter(timelimits.ShortPoll)
			return countFailed(s.Decision.Action, r.carryOutRestore(ctx, s, s.Decision))
		case plan.KeepOwners, plan.KeepCertificates, plan.KeepAll:
		}
		r.awaitEndpoint(s, s.Decision)
		if err := r.carryOut(ctx, s, s.Decision); err != nil {
			return r.failed(s, err)
		}
		if a := s.Decision.Action; a != plan.CreateMachine && a != plan.StartInit {
			s.RequeueAfter(requeueAfterAction(a))
			return nil
		}
	}
	if s.Decision.Upkeep == plan.KeepKubeconfig {
		s.RequeueAfter(timelimits.ShortPoll)
	}
	r.awaitEndpoint(s, s.Decision)
	s.RequeueAfter(s.Decision.RequeueAfter)
	return nil
}
