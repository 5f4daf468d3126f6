package vsphere

import (
	"context"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// Shutdown refuses: the guest is not asked yet.
func (d *driver) Shutdown(context.Context, *infrav1.NovaVSphereMachine) error {
	return failure(infrav1.GuestUnreachableReason, "this guest cannot be asked to power itself off")
}
