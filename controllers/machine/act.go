package machine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// actionText describes an action in words that precede the cause of its failure. An action that is not
// in the map sends no request to the hypervisor.
var actionText = map[action]string{
	create: "creating VM", start: "powering on VM", syncVM: "syncing VM",
	shutdown: "powering off VM", destroy: "deleting VM",
}

// acceptedEvent returns the reason and note of the event for an accepted request to the hypervisor.
func (s *scope[M]) acceptedEvent() (reason, note string) {
	switch s.action {
	case create:
		if s.vm.Message != "" {
			return "Deleting", s.vm.Message // from an earlier attempt
		}
		return "Created", "Requested the creation of the VM"
	case start:
		return "Started", "Requested to power on the VM"
	case syncVM:
		if s.syncer.Name == hypervisor.UserData {
			return "Cleared", "Requested the removal of the user data from the VM's settings"
		}
		return "Syncing", cmp.Or(s.vm.OutOfSync, "Requested a change of "+s.syncer.Name)
	case shutdown:
		return "PoweringOff", "Requested the shutdown of the guest"
	default:
		if s.vm.State == hypervisor.Running {
			return "Deleting", "Requested to power off the VM before its deletion"
		}
		return "Deleting", "Requested the deletion of the VM"
	}
}

// act sends the request of the due action to the hypervisor. A later Observe sees its result; a push
// from the driver triggers that reconcile.
func (r *Reconciler[M]) act(ctx context.Context, s *scope[M], request func(context.Context) error) (ctrl.Result, error) {
	err := request(ctx)
	if hypervisor.IsWaiting(err) { // a wait, not a failure
		return ctrl.Result{}, fmt.Errorf("%s: %w", actionText[s.action], err)
	}
	r.retries.tried(s.key(), s.attempt())
	if err != nil {
		err = fmt.Errorf("%s: %w", actionText[s.action], err)
		r.retries.failed(s.key(), s.attempt(), err)
		r.count(s, failed)
		if s.syncsRunningVM() || s.action == shutdown {
			ctrl.LoggerFrom(ctx).Error(err, "The hypervisor rejected the request")
			s.failedNow(s.attempt(), err)
			s.failure, s.partFailure = err, r.retries.firstFailure(s.key(), s.parts)
			return s.retryResult(r.delay(s)), nil
		}
		return ctrl.Result{}, err
	}
	r.count(s, accepted)
	if s.failure == nil { // a retry does not clear the failure: the condition keeps showing it
		reason, note := s.acceptedEvent()
		r.event(s, corev1.EventTypeNormal, reason, note)
	}
	return ctrl.Result{RequeueAfter: min(reconcile.PollInterval, cmp.Or(s.shutdownTimeLeft, reconcile.PollInterval))}, nil
}

// defaultFormat is the format of bootstrap data whose Secret does not set one.
const defaultFormat = "cloud-config"

// create requests the VM once Cluster API has set the bootstrap data.
func (r *Reconciler[M]) create(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	if s.machine == nil || ptr.Deref(s.machine.Spec.Bootstrap.DataSecretName, "") == "" {
		s.waiting = forBootstrapData
		return ctrl.Result{}, nil
	}
	if current, err := r.mayCreate(ctx, s); err != nil || !current {
		return ctrl.Result{}, err
	}
	addresses, claimed, err := r.addresser().addresses(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(claimed) > 0 {
		r.event(s, corev1.EventTypeNormal, "AddressesClaimed", "Created the IPAddressClaims "+strings.Join(claimed, ", "))
	}
	if s.waiting != forNothing {
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil
	}
	launch, err := r.launch(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	launch.Interfaces = addresses
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Create(ctx, s.infra, launch) })
}

// mayCreate reports whether the machine may still get a VM. It reads from the API server: an older copy
// could hide that the machine was provisioned before or is being deleted, and the VM would be a
// duplicate or an orphan. If the machine may not get a VM, the event that brings the newer copy
// reconciles it again.
func (r *Reconciler[M]) mayCreate(ctx context.Context, s *scope[M]) (bool, error) {
	live := r.New()
	if err := r.APIReader.Get(ctx, s.key(), live); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading machine: %w", err)
	}
	spec, _ := live.Common()
	return live.GetUID() == s.infra.GetUID() && live.GetDeletionTimestamp().IsZero() && spec.ProviderID == "", nil
}

// launch collects the inputs of the VM's first boot. It reads the Secret from the API server, so that
// no manager has to cache every Secret in memory.
func (r *Reconciler[M]) launch(ctx context.Context, s *scope[M]) (hypervisor.CreateOptions, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.infra.GetNamespace(), Name: *s.machine.Spec.Bootstrap.DataSecretName}
	err := r.APIReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return hypervisor.CreateOptions{}, noBootstrapData("Secret %q does not exist", key.Name)
	case err != nil:
		return hypervisor.CreateOptions{}, fmt.Errorf("reading bootstrap data: %w", err)
	case len(secret.Data["value"]) == 0:
		return hypervisor.CreateOptions{}, noBootstrapData("Secret %q has no data under the key value", key.Name)
	}
	return hypervisor.CreateOptions{
		UserData: secret.Data["value"],
		Format:   cmp.Or(string(secret.Data["format"]), defaultFormat),
		Zone:     s.machine.Spec.FailureDomain,
	}, nil
}

func noBootstrapData(format string, args ...any) error {
	return &hypervisor.Error{
		Reason: infrav1.WaitingForBootstrapDataReason,
		Err:    fmt.Errorf("reading bootstrap data: "+format, args...),
	}
}

// start powers the VM on, for the first time or after a user powered it off.
func (r *Reconciler[M]) start(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Start(ctx, s.infra) })
}

// syncVM changes the part of the VM, or of its surroundings, that is the next to match the spec.
// Observe reports which parts still differ, so a crash neither skips nor repeats a change.
func (r *Reconciler[M]) syncVM(ctx context.Context, s *scope[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return s.syncer.Apply(ctx, s.infra) })
}

// unbounded is the shutdown timeout of a machine without a limit.
const unbounded = time.Duration(math.MaxInt64)

// remainingShutdownTime returns the remaining time for the guest to power itself off. Zero means that
// the VM is powered off hard. The time starts at the deletion timestamp, which is stored in the
// object, so a restart of the manager does not reset it. unreachable means that the guest cannot receive
// shutdown requests.
func remainingShutdownTime(p infrav1.PowerOff, deleted, now time.Time, unreachable bool) time.Duration {
	switch {
	case p.Mode == infrav1.PowerOffSoft:
		return unbounded
	case p.Mode != infrav1.PowerOffSoftThenHard || unreachable:
		return 0
	default:
		return max(0, deleted.Add(p.Timeout()).Sub(now))
	}
}

// shutdown requests that the guest powers itself off, repeats the request from time to time, and
// requeues at the latest when the timeout ends.
func (r *Reconciler[M]) shutdown(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	if left := r.shutdownRequests.untilNext(s.key(), time.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: min(left, s.shutdownTimeLeft)}, nil
	}
	var shutdownErr error
	result, err := r.act(ctx, s, func(ctx context.Context) error {
		if shutdownErr = driver.Shutdown(ctx, s.infra); shutdownErr == nil {
			r.shutdownRequests.Set(s.key(), shutdownRequest{at: time.Now()})
		}
		return shutdownErr
	})
	spec, _ := s.infra.Common()
	if spec.PowerOff.Mode != infrav1.PowerOffSoftThenHard || hypervisor.ReasonFor(shutdownErr, "") != infrav1.GuestUnreachableReason {
		return result, err
	}
	r.shutdownRequests.Set(s.key(), shutdownRequest{unreachable: true})
	r.event(s, corev1.EventTypeWarning, infrav1.GuestUnreachableReason, reconcile.Sentence(shutdownErr)+"; powering off the VM")
	s.action, s.failure, s.shutdownTimeLeft = destroy, nil, 0
	return r.destroy(ctx, s, driver)
}

// destroy deletes the VM. It is repeated until the VM is Absent.
func (r *Reconciler[M]) destroy(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Delete(ctx, s.infra) })
}

// release removes the finalizer of a machine whose VM is deleted. It releases the VM's addresses
// first, because no VM uses them any more.
func (r *Reconciler[M]) release(ctx context.Context, s *scope[M]) error {
	if err := r.addresser().releaseAddresses(ctx, s); err != nil {
		return err
	}
	s.released = controllerutil.RemoveFinalizer(s.infra, infrav1.MachineFinalizer)
	return nil
}
