package zvirt

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Size reports the capacity of a node created from t, from t itself, its
// instance type or the template in the engine.
func (c *Connector) Size(ctx context.Context, t *zvirtv1.NovaZVirtMachineTemplate) (hypervisor.Size, error) {
	if t.Labels[clusterv1.ClusterNameLabel] == "" {
		return hypervisor.Size{}, hypervisor.Waiting(infrav1.WaitingForClusterReason, "no cluster uses the template yet")
	}
	cluster, err := c.findCluster(ctx, t)
	if err != nil {
		return hypervisor.Size{}, err
	}
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Size{}, err
	}
	if err := s.Ready(ctx, hypervisor.Key{}); err != nil {
		return hypervisor.Size{}, err
	}
	return s.Size(ctx, bounds, cluster, &t.Spec.Template.Spec)
}
