package zvirt

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Inspect reports the engine of a cluster. It returns an error for a placement
// or failure domain that references an object that does not exist, before the
// first machine uses it.
func (c *Connector) Inspect(ctx context.Context, cluster *zvirtv1.NovaZVirtCluster) (hypervisor.Endpoint, error) {
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Endpoint{}, err
	}
	if err := s.Ready(ctx, hypervisor.Key{}); err != nil {
		return hypervisor.Endpoint{}, err
	}
	trust := s.Trust()
	out := hypervisor.Endpoint{Server: s.Server(), CABundle: trust.CABundle, Thumbprint: trust.Thumbprint}
	out.ID, out.Version = s.EngineInfo()
	out.VMs = plan.OwnedVMs(cluster.Annotations[infrav1.ClusterIDAnnotation], cluster.Namespace, s.Cache.All())
	if err := s.Check(ctx, bounds, cluster, zvirtv1.NovaZVirtFailureDomain{}); err != nil {
		return out, err
	}
	for i := range cluster.Spec.FailureDomains {
		domain := &cluster.Spec.FailureDomains[i]
		if err := s.Check(ctx, bounds, cluster, *domain); err != nil {
			return out, fmt.Errorf("failure domain %q: %w", domain.Name, err)
		}
		out.FailureDomains = append(out.FailureDomains, clusterv1.FailureDomain{Name: domain.Name, ControlPlane: ptr.To(domain.TakesControlPlane())})
	}
	return out, nil
}
