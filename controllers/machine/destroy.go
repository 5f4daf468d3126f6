package machine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// destroy deletes the VM. It is repeated until the VM is Absent.
func (r *Reconciler[M]) destroy(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Delete(ctx, s.infra) })
}
