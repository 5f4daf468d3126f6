package machine

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

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
