package machine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// syncVM reconciles the VM's surroundings with the spec and, once the node has joined, removes the
// user data from the VM's settings. Observe reports whether the user data is still there, so a crash
// neither skips nor repeats the removal.
func (r *Reconciler[M]) syncVM(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Sync(ctx, s.infra, s.joined()) })
}
