package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// release removes the finalizer of a machine whose VM is deleted. It releases the VM's addresses
// first, because no VM uses them any more.
func (r *Reconciler[M]) release(ctx context.Context, s *scope[M]) error {
	if err := r.releaseAddresses(ctx, s); err != nil {
		return err
	}
	s.released = controllerutil.RemoveFinalizer(s.infra, infrav1.MachineFinalizer)
	return nil
}
