package engine

import (
	"context"
	"fmt"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Check resolves all names in a failure domain, or in the cluster itself.
func (s *Session) Check(ctx context.Context, b Bounds, cluster *zvirtv1.NovaZVirtCluster, domain zvirtv1.NovaZVirtFailureDomain) error {
	return Classify(s.server, s.check(ctx, b, cluster, domain))
}

func (s *Session) check(ctx context.Context, b Bounds, cluster *zvirtv1.NovaZVirtCluster, domain zvirtv1.NovaZVirtFailureDomain) error {
	at, err := plan.DefaultPlacement(&cluster.Spec, domain.Name)
	if err != nil {
		return err
	}
	if at.ComputeCluster == "" && len(cluster.Spec.FailureDomains) > 0 && domain.Name == "" {
		return nil // each machine is created in a failure domain, which sets it
	}
	cl, err := s.computeCluster(ctx, b, at)
	if err != nil {
		return err
	}
	dc := cl.DataCenter.ID
	// The cache reads the groups of the cluster from now on, so that empty groups
	// are detected.
	if _, _, err := s.Cache.Group(ctx, cl.ID, ""); err != nil {
		return err
	}
	if err := s.checkPlacement(ctx, b, at, cl); err != nil {
		return err
	}
	for i := range domain.Networks {
		if _, err := s.profile(ctx, b, fmt.Sprintf("networks[%d].network", i), dc, domain.Networks[i].Network); err != nil {
			return err
		}
	}
	if name := cluster.Spec.Network; name != "" && len(domain.Networks) == 0 {
		if _, err := s.profile(ctx, b, "network", dc, name); err != nil {
			return err
		}
	}
	if _, err := s.findAll(ctx, "affinityLabel", ovirt.AffinityLabels, at.Labels, ovirt.Any); err != nil {
		return err
	}
	if at.Template != (zvirtv1.NovaZVirtTemplate{}) {
		_, err = s.template(ctx, b, at, dc)
	}
	return err
}

// checkPlacement resolves the names in a placement, except the compute cluster.
func (s *Session) checkPlacement(ctx context.Context, b Bounds, at plan.Placement, cl ovirt.Object) error {
	if _, err := s.domains(ctx, b, cl.DataCenter.ID, at.StorageDomain); err != nil {
		return err
	}
	if _, err := s.quota(ctx, at.Quota, cl.DataCenter.ID); err != nil {
		return err
	}
	_, err := s.findAll(ctx, "placement.hosts", ovirt.Hosts, at.Hosts, on(cl.ID))
	return err
}

// Size returns the capacity of a VM of a spec.
func (s *Session) Size(ctx context.Context, b Bounds, cluster *zvirtv1.NovaZVirtCluster, m *zvirtv1.NovaZVirtMachineSpec) (hypervisor.Size, error) {
	zone := ""
	if domains := cluster.Spec.FailureDomains; len(domains) > 0 {
		zone = domains[0].Name // the size is the same in all of them
	}
	at, err := plan.PlacementOf(&cluster.Spec, m, zone)
	if err != nil {
		return hypervisor.Size{}, err
	}
	cl, err := s.computeCluster(ctx, b, at)
	if err != nil {
		return hypervisor.Size{}, Classify(s.server, err)
	}
	t, err := s.template(ctx, b, at, cl.DataCenter.ID)
	if err != nil {
		return hypervisor.Size{}, Classify(s.server, err)
	}
	var kind ovirt.Object
	if name := m.Hardware.InstanceType; name != "" {
		if kind, err = s.names.Find(ctx, ovirt.InstanceTypes, name, ovirt.Any); err != nil {
			return hypervisor.Size{}, Classify(s.server, Unresolved(infrav1.PlacementNotFoundReason, "hardware.instanceType", err))
		}
	}
	return plan.Size(m, kind, t, cl.CPU), nil
}
