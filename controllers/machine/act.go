package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// doing says an action in words that go before the cause of its failure.
var doing = map[action]string{create: "creating VM", start: "powering on VM", destroy: "deleting VM"}

// asked is the event that an accepted request becomes. What is not in it asks
// nothing of the hypervisor.
var asked = map[action]struct{ reason, note string }{
	create:  {"Created", "Asked the hypervisor to create the VM"},
	start:   {"Started", "Asked the hypervisor to power the VM on"},
	destroy: {"Deleting", "Asked the hypervisor to delete the VM"},
}

// act asks the hypervisor for what is due. What comes of it is seen by a later
// Observe, to which a push of the driver leads.
func (r *Reconciler[M]) act(ctx context.Context, s *scope[M], ask func(context.Context) error) (ctrl.Result, error) {
	r.retries.tried(s.key())
	if err := ask(ctx); err != nil {
		err = fmt.Errorf("%s: %w", doing[s.do], err)
		r.retries.failed(s.key(), s.do, err)
		r.count(s, failed)
		return ctrl.Result{}, err
	}
	r.count(s, accepted)
	if s.failure == nil { // that it is tried again is no news: the failure stays what people see
		r.event(s, corev1.EventTypeNormal, asked[s.do].reason, asked[s.do].note)
	}
	return ctrl.Result{RequeueAfter: loop.Net}, nil
}
