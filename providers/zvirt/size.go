package zvirt

import (
	"context"

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Size reports the capacity of a node created from t, from t itself, its
// instance type or the template in the engine.
func (c *Connector) Size(ctx context.Context, t *zvirtv1.NovaZVirtMachineTemplate) (hypervisor.Size, error) {
	cluster, s, bounds, err := kit.OpenForTemplate(ctx, t, c.findCluster, c.open)
	if err != nil {
		return hypervisor.Size{}, err
	}
	return s.Size(ctx, bounds, cluster, &t.Spec.Template.Spec)
}
