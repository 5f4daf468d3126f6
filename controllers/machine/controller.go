package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Object is the interface that the reconciler requires of an infrastructure machine.
type Object interface {
	client.Object
	conditions.Setter

	// Common returns the fields that all machines share. Writing to them changes the object.
	Common() (*infrav1.MachineSpec, *infrav1.MachineStatus)

	// Addressing returns the IP address settings of the machine's network interfaces in a failure
	// domain.
	Addressing(failureDomain string) []*infrav1.InterfaceAddressing

	// MostPools returns the largest number of pools of an interface in any failure domain.
	MostPools(nic int) int
}

// ClusterObject is the interface that the reconciler requires of an infrastructure cluster.
type ClusterObject interface {
	client.Object
	conditions.Getter
}

// Reconciler reconciles machines of type M.
type Reconciler[M Object] struct {
	// Client reads through the cache and writes. Defaults to the manager's client.
	Client client.Client
	// APIReader reads from the API server, without the cache. Defaults to the manager's reader.
	APIReader client.Reader
	// Recorder records events. Defaults to the manager's recorder.
	Recorder events.EventRecorder
	// Connector opens drivers.
	Connector hypervisor.Connector[M]
	// New returns an empty machine.
	New func() M
	// InfraCluster is an empty infrastructure cluster of the kind that the machines belong to. When an
	// infrastructure cluster becomes available or changes, its machines are reconciled at once.
	InfraCluster ClusterObject
	// Fence prevents changes to VMs that another management cluster manages.
	Fence fence.Fence
	// Resolver looks up endpoints that are given by DNS name. If not set, the default resolver is
	// used.
	Resolver Resolver
	// WatchFilterValue limits the machines to those with this watch label. If not set, all machines
	// are reconciled.
	WatchFilterValue string

	retries          retries
	shutdownRequests shutdownRequests
	// writtenConditions are the conditions that were last written for each machine. The cache may not
	// show them yet at the next reconcile, which would then record the same events again.
	writtenConditions reconcile.Memory[types.NamespacedName, conditionSet]
	lookups           lookups
}

// Reconcile brings the VM of one machine one step closer to its spec.
func (r *Reconciler[M]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope[M]{infra: r.New()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.infra); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(s, req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(s.infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if err := r.findOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if !s.deleting() && !s.owned() {
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the Machine and its Cluster")
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	}
	if ready, err := r.prepare(ctx, s); err != nil || !ready {
		return ctrl.Result{}, err
	}
	return r.reconcile(ctx, s)
}

// prepare ensures the finalizer and the owners that a reconcile requires, and reports whether they are
// there. Each write causes an event that reconciles the machine again.
func (r *Reconciler[M]) prepare(ctx context.Context, s *scope[M]) (bool, error) {
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, s.infra, infrav1.MachineFinalizer); err != nil || added {
		return false, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, s.infra); err != nil || isPaused || requeue {
		return false, err
	}
	// If the finalizer is already removed, our part of a deletion is done.
	return controllerutil.ContainsFinalizer(s.infra, infrav1.MachineFinalizer), nil
}

// reconcile performs one step and patches the result into the object.
func (r *Reconciler[M]) reconcile(ctx context.Context, s *scope[M]) (result ctrl.Result, reterr error) {
	helper, err := patch.NewHelper(s.infra, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	before := snapshot(s.infra)
	defer func() {
		s.report(reterr)
		result, reterr = s.prioritize(result, reterr)
		if err := helper.Patch(ctx, s.infra, owned); err != nil {
			reterr = errors.Join(reterr, fmt.Errorf("patching machine: %w", err))
			return
		}
		r.announce(s, before)
		reterr = kit.Retry(reterr, s.deleting())
	}()
	return r.step(ctx, s)
}

// owned lists the conditions that only this controller writes.
var owned = patch.WithOwnedConditions{Conditions: []string{
	clusterv1.PausedCondition, clusterv1.ReadyCondition,
	infrav1.VirtualMachineProvisionedCondition, infrav1.VirtualMachineSyncedCondition, infrav1.NodeBootstrappedCondition,
}}

// step observes the VM and performs the one action that is due.
func (r *Reconciler[M]) step(ctx context.Context, s *scope[M]) (ctrl.Result, error) {
	if s.provisioned() {
		// If the machine was moved to this management cluster, the move has dropped its status.
		_, status := s.infra.Common()
		status.Initialization.Provisioned = ptr.To(true)
	}
	if !s.deleting() && !s.provisioned() && !s.infrastructureProvisioned() {
		s.waiting = forInfrastructure
		return ctrl.Result{}, nil
	}
	if err := r.findInfraCluster(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	driver, err := r.connect(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.observe(ctx, s, driver); err != nil {
		return ctrl.Result{}, err
	}
	ctrl.LoggerFrom(ctx).V(4).Info("Observed VM", "state", s.vm.State, "action", s.action)
	if s.action == publish || s.syncsRunningVM() {
		if err := r.publish(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	if actionText[s.action] != "" && r.fenced(s) {
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	}
	return r.perform(ctx, s, driver)
}

// publish writes the state of the VM to the objects.
func (r *Reconciler[M]) publish(ctx context.Context, s *scope[M]) error {
	if err := s.publish(); err != nil {
		s.partFailure = nil
		return err
	}
	if err := labelHost(ctx, r.Client, s.machine, s.vm.Host); err != nil {
		// The VM runs all the same, so this is not a failure of the machine.
		ctrl.LoggerFrom(ctx).Error(err, "Labeling the Machine with its host")
		s.hostNotLabeled = true
	}
	return nil
}

// fenced reports whether another management cluster manages the machine.
func (r *Reconciler[M]) fenced(s *scope[M]) bool {
	if err := r.allowed(s); err != nil {
		s.failure, s.partFailure = err, nil
		return true
	}
	return false
}

// perform runs the due action, unless the action failed and its retry is not due yet.
func (r *Reconciler[M]) perform(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	if delay := r.delay(s); s.failure != nil && s.action != wait && delay(s.attempt()) > 0 {
		return s.retryResult(delay), nil
	}
	switch s.action {
	case create:
		return r.create(ctx, s, driver)
	case start:
		return r.start(ctx, s, driver)
	case syncVM:
		return r.syncVM(ctx, s)
	case shutdown:
		return r.shutdown(ctx, s, driver)
	case destroy:
		return r.destroy(ctx, s, driver)
	case publish:
		if s.hostNotLabeled {
			return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
		}
		return ctrl.Result{}, nil
	case release:
		return ctrl.Result{}, r.release(ctx, s)
	default:
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	}
}

// delay returns the time until an action on the machine may be tried again.
func (r *Reconciler[M]) delay(s *scope[M]) func(action) time.Duration {
	return func(do action) time.Duration { return r.retries.delay(s.key(), do) }
}

// observe sets the VM, the due action and, if an earlier attempt at the action failed, its error.
func (r *Reconciler[M]) observe(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) error {
	vm, err := driver.Observe(ctx, s.infra)
	if err != nil {
		return fmt.Errorf("observing VM: %w", err)
	}
	vm.Addresses = r.addresser().ownAddresses(ctx, s, &vm)
	s.vm = vm
	return r.decide(s, driver.Syncers())
}

// decide sets the due action and, if an earlier attempt at it failed, its error.
func (r *Reconciler[M]) decide(s *scope[M], syncers []hypervisor.Syncer[M]) error {
	vm, at := s.vm, r.lifecycle(s)
	pending := pendingSyncers(syncers, &vm, s.joined())
	at.syncDue = len(pending) > 0
	s.action = next(vm, at)
	if err := r.recordFailure(s, pending); err != nil {
		return err
	}
	var parts []action
	for _, p := range pending {
		parts = append(parts, syncAttempt(p.Name))
	}
	if s.action == syncVM {
		s.parts = parts
		s.syncer, _ = nextSyncer(pending, func(p hypervisor.Syncer[M]) time.Duration { return r.delay(s)(syncAttempt(p.Name)) })
	}
	s.failure = r.retries.lastFailure(s.key(), s.attempt(), vm.State == hypervisor.Busy, parts...)
	if s.syncsRunningVM() {
		s.partFailure = r.retries.firstFailure(s.key(), parts)
	}
	return nil
}

// recordFailure records the failure that the driver reports, if the action that failed is due again. It
// returns the failure if it is new and blocks the machine.
func (r *Reconciler[M]) recordFailure(s *scope[M], pending []hypervisor.Syncer[M]) error {
	cause, attempt := s.vm.LastFailure, s.action
	if cause == nil || actionText[s.action] == "" {
		return nil
	}
	if s.action == syncVM {
		if !slices.ContainsFunc(pending, func(p hypervisor.Syncer[M]) bool { return p.Name == s.vm.FailedSyncer }) {
			return nil
		}
		attempt = syncAttempt(s.vm.FailedSyncer)
	} else if s.vm.FailedSyncer != "" {
		return nil
	}
	err := fmt.Errorf("%s: %w", actionText[s.action], cause)
	if !r.retries.reportedByDriver(s.key(), attempt, cause, err) {
		return nil
	}
	r.count(s, failed)
	if !s.syncsRunningVM() {
		return err
	}
	s.failedNow(attempt, err)
	return nil
}

// lifecycle returns the state of the machine apart from its VM.
func (r *Reconciler[M]) lifecycle(s *scope[M]) lifecycle {
	at := lifecycle{deleting: s.deleting(), machineDeleting: s.machineDeleting(), provisioned: s.provisioned()}
	if at.deleting {
		spec, _ := s.infra.Common()
		s.shutdownTimeLeft = remainingShutdownTime(spec.PowerOff, s.infra.GetDeletionTimestamp().Time, time.Now(), r.shutdownRequests.isUnreachable(s.key()))
		at.softShutdown = s.shutdownTimeLeft > 0
	}
	return at
}
