package machine

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

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
		if s.syncer.AfterJoin {
			return "Cleared", "Requested the removal of the user data from the VM's settings"
		}
		return "Syncing", s.vm.OutOfSync
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
	r.retries.tried(s.key())
	if err != nil {
		err = fmt.Errorf("%s: %w", actionText[s.action], err)
		r.retries.failed(s.key(), s.attempt(), err)
		r.count(s, failed)
		if s.syncsRunningVM() || s.action == shutdown {
			ctrl.LoggerFrom(ctx).Error(err, "The hypervisor rejected the request")
			s.failure, s.failedBefore = err, false
			return s.retryResult(r.retries.delay(s.key())), nil
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
