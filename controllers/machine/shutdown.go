package machine

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// unbounded is the shutdown timeout of a machine without a limit.
const unbounded = time.Duration(math.MaxInt64)

// patience returns the remaining time for the guest to power itself off. Zero means that the VM is
// powered off hard. The time starts at the deletion timestamp, which is stored in the object, so a
// restart of the manager does not reset it. deaf means that the guest cannot receive shutdown
// requests.
func patience(p infrav1.PowerOff, deleted, now time.Time, deaf bool) time.Duration {
	switch {
	case p.Mode == infrav1.PowerOffSoft:
		return unbounded
	case p.Mode != infrav1.PowerOffSoftThenHard || deaf:
		return 0
	default:
		return max(0, deleted.Add(p.Timeout()).Sub(now))
	}
}

// shutdown requests that the guest powers itself off, repeats the request from time to time, and
// requeues at the latest when the timeout ends.
func (r *Reconciler[M]) shutdown(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	if left := r.guests.rest(s.key(), time.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: min(left, s.patience)}, nil
	}
	var refusal error
	result, err := r.act(ctx, s, func(ctx context.Context) error {
		if refusal = driver.Shutdown(ctx, s.infra); refusal == nil {
			r.guests.asked(s.key(), time.Now())
		}
		return refusal
	})
	spec, _ := s.infra.Common()
	if spec.PowerOff.Mode != infrav1.PowerOffSoftThenHard || hypervisor.ReasonFor(refusal, "") != infrav1.GuestUnreachableReason {
		return result, err
	}
	r.guests.deaf(s.key())
	r.event(s, corev1.EventTypeWarning, infrav1.GuestUnreachableReason, loop.Sentence(refusal)+"; powering off the VM")
	s.do, s.failure, s.patience = destroy, nil, 0
	return r.destroy(ctx, s, driver)
}
