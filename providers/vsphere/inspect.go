package vsphere

import (
	"context"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Inspect reports on the vCenter behind cluster. A placement that names what
// does not exist is an error here, before the first machine meets it.
func (c *Connector) Inspect(ctx context.Context, cluster *infrav1.NovaVSphereCluster) (hypervisor.Site, error) {
	s, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Site{}, err
	}
	api, _, err := s.ready(ctx, hypervisor.Key{})
	if err != nil {
		return hypervisor.Site{}, err
	}
	if err := s.paths.check(ctx, cluster.Spec.Placement); err != nil {
		return hypervisor.Site{}, err
	}
	return hypervisor.Site{Version: api.ServiceContent.About.Version}, nil
}
