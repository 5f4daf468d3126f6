package machine

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// doing says an action in words that go before the cause of its failure. What
// is not in it asks nothing of the hypervisor.
var doing = map[action]string{
	create: "creating VM", start: "powering on VM", settle: "syncing VM",
	shutdown: "powering off VM", destroy: "deleting VM",
}

// asked is the event that an accepted request becomes.
func (s *scope[M]) asked() (reason, note string) {
	switch s.do {
	case create:
		if s.vm.Message != "" {
			return "Deleting", s.vm.Message // of an attempt before
		}
		return "Created", "Asked the hypervisor to create the VM"
	case start:
		return "Started", "Asked the hypervisor to power the VM on"
	case settle:
		if s.vm.Unsettled == "" {
			return "Cleared", "Asked the hypervisor to remove the user data from the VM's settings"
		}
		return "Syncing", s.vm.Unsettled
	case shutdown:
		return "PoweringOff", "Asked the guest to power itself off"
	default:
		if s.vm.State == hypervisor.Running {
			return "Deleting", "Asked the hypervisor to power the VM off, to delete it"
		}
		return "Deleting", "Asked the hypervisor to delete the VM"
	}
}

// act asks the hypervisor for what is due. What comes of it is seen by a later
// Observe, to which a push of the driver leads.
func (r *Reconciler[M]) act(ctx context.Context, s *scope[M], ask func(context.Context) error) (ctrl.Result, error) {
	r.retries.tried(s.key())
	if err := ask(ctx); err != nil {
		err = fmt.Errorf("%s: %w", doing[s.do], err)
		if hypervisor.IsWaiting(err) {
			return ctrl.Result{}, err // nothing failed
		}
		r.retries.failed(s.key(), s.do, err)
		r.count(s, failed)
		if s.aside() || s.do == shutdown {
			ctrl.LoggerFrom(ctx).Error(err, "The hypervisor refused")
			s.failure, s.earlier = err, false
			return s.again(r.retries.delay(s.key())), nil
		}
		return ctrl.Result{}, err
	}
	r.count(s, accepted)
	if s.failure == nil { // that it is tried again is no news: the failure stays what people see
		reason, note := s.asked()
		r.event(s, corev1.EventTypeNormal, reason, note)
	}
	return ctrl.Result{RequeueAfter: min(loop.Net, cmp.Or(s.patience, loop.Net))}, nil
}
