package zvirt

import (
	"context"
	"errors"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Size reports the capacity of a node created from t, from t itself, its
// instance type or the template in the engine.
func (c *Connector) Size(ctx context.Context, t *infrav1.NovaZVirtMachineTemplate) (hypervisor.Size, error) {
	name := clusterNameOf(t)
	if name == "" {
		return hypervisor.Size{}, waitingForCluster("no cluster uses the template yet")
	}
	cluster, err := c.clusterOf(ctx, t.Namespace, name)
	if errors.Is(err, errNoCluster) {
		// The objects of a cluster can be created in any order.
		return hypervisor.Size{}, waitingForCluster("the Cluster %q has no NovaZVirtCluster yet", name)
	}
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

// waitingForCluster returns the Error for a template that no cluster uses yet.
func waitingForCluster(format string, args ...any) *hypervisor.Error {
	e := plan.Failure(infrav1.WaitingForClusterReason, format, args...)
	e.Waiting = true
	return e
}
