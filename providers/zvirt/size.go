package zvirt

import (
	"context"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Size reports what a node made from t has: what t says, or its instance type,
// or the template in the engine.
func (c *Connector) Size(ctx context.Context, t *infrav1.NovaZVirtMachineTemplate) (hypervisor.Size, error) {
	name := clusterNameOf(t)
	if name == "" {
		unknown := plan.Failure(infrav1.WaitingForInfrastructureReason, "no cluster uses the template yet")
		unknown.Waiting = true
		return hypervisor.Size{}, unknown
	}
	cluster, err := c.clusterOf(ctx, t.Namespace, name)
	if err != nil {
		return hypervisor.Size{}, err
	}
	s, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Size{}, err
	}
	if err := s.Ready(ctx, hypervisor.Key{}); err != nil {
		return hypervisor.Size{}, err
	}
	return s.Size(ctx, cluster, &t.Spec.Template.Spec)
}
