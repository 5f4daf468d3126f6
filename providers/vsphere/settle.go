package vsphere

import (
	"context"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// Settle has nothing to do while Observe calls nothing unsettled.
func (d *driver) Settle(context.Context, *infrav1.NovaVSphereMachine, bool) error { return nil }
