package machine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
)

// syncVM changes the part of the VM, or of its surroundings, that is the next to match the spec.
// Observe reports which parts still differ, so a crash neither skips nor repeats a change.
func (r *Reconciler[M]) syncVM(ctx context.Context, s *scope[M]) (ctrl.Result, error) {
	return r.act(ctx, s, func(ctx context.Context) error { return s.syncer.Apply(ctx, s.infra) })
}
