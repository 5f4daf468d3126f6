package zvirt

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Inspect reports on the engine behind cluster. A placement or failure domain
// that names what does not exist is an error here, before the first machine
// meets it.
func (c *Connector) Inspect(ctx context.Context, cluster *infrav1.NovaZVirtCluster) (hypervisor.Site, error) {
	s, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Site{}, err
	}
	if err := s.Ready(ctx, hypervisor.Key{}); err != nil {
		return hypervisor.Site{}, err
	}
	out := hypervisor.Site{}
	if err := s.check(ctx, cluster, infrav1.NovaZVirtFailureDomain{}); err != nil {
		return out, classify(s.server, err)
	}
	for i := range cluster.Spec.FailureDomains {
		domain := &cluster.Spec.FailureDomains[i]
		if err := s.check(ctx, cluster, *domain); err != nil {
			return out, classify(s.server, fmt.Errorf("failure domain %q: %w", domain.Name, err))
		}
		out.FailureDomains = append(out.FailureDomains, clusterv1.FailureDomain{Name: domain.Name, ControlPlane: ptr.To(domain.IsControlPlane())})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Version = s.version
	return out, nil
}

// check looks up all that a failure domain names, or the cluster itself.
func (s *session) check(ctx context.Context, cluster *infrav1.NovaZVirtCluster, domain infrav1.NovaZVirtFailureDomain) error {
	at, err := plan.SiteOf(&cluster.Spec, &infrav1.NovaZVirtMachineSpec{}, domain.Name)
	if err != nil {
		return err
	}
	if at.Cluster == "" && len(cluster.Spec.FailureDomains) > 0 && domain.Name == "" {
		return nil // every machine lands in a domain that says it
	}
	cl, err := s.place(ctx, at)
	if err != nil {
		return err
	}
	dc := cl.DataCenter.ID
	// From now on groups that their last member has left are seen.
	if _, _, err := s.mirror.Group(ctx, cl.ID, ""); err != nil {
		return err
	}
	if _, err := s.domains(ctx, dc, at.StorageDomain); err != nil {
		return err
	}
	if _, err := s.findAll(ctx, "placement.hosts", ovirt.Hosts, at.Hosts, on(cl.ID)); err != nil {
		return err
	}
	if _, err := s.profiles(ctx, "vnicProfiles[%d]", dc, domain.VNICProfiles); err != nil {
		return err
	}
	if name := cluster.Spec.VNICProfile; name != "" && len(domain.VNICProfiles) == 0 {
		if _, err := s.names.Profile(ctx, name, dc); err != nil {
			return unresolved(infrav1.PlacementNotFoundReason, "vnicProfile", err)
		}
	}
	if _, err := s.findAll(ctx, "affinityLabel", ovirt.AffinityLabels, at.Labels, ovirt.Any); err != nil {
		return err
	}
	if at.Template != (infrav1.NovaZVirtTemplateReference{}) {
		_, err = s.template(ctx, at, dc)
	}
	return err
}
