package machine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// settle brings what surrounds the VM in line with the machine and, once the
// node has joined, the user data out of the VM's settings. Whether it is still
// in them is observed, so a crash neither forgets it nor does it twice.
func (r *Reconciler[M]) settle(ctx context.Context, s *scope[M], driver hypervisor.Driver[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return driver.Settle(ctx, s.infra, s.joined()) })
}

// aside reports whether what is due holds nothing up: the VM is up, and only
// what surrounds it is not yet as it should be. Its failure is told by the
// Settled condition alone.
func (s *scope[M]) aside() bool { return s.do == settle && s.vm.State == hypervisor.Running }
