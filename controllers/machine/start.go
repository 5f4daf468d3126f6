package machine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// start powers the VM on, for the first time or after a user powered it off.
func (r *Reconciler[M]) start(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Start(ctx, s.infra) })
}
