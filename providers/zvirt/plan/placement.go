package plan

import (
	"cmp"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Placement is the placement of a VM with the settings that a failure domain
// can replace. Objects are referenced by name.
type Placement struct {
	zvirtv1.NovaZVirtPlacement

	Template zvirtv1.NovaZVirtTemplate
	// Interfaces are the network interfaces of the machine, in order, with the
	// networks of its failure domain. Each has a network: a vNIC profile.
	Interfaces []zvirtv1.NovaZVirtInterface
	// AntiAffinity is empty if the default applies.
	AntiAffinity infrav1.AntiAffinity
	// Labels are the affinity labels of the machine and of its failure domain.
	Labels []string
}

// PlacementOf returns the placement of the VM of a machine in a failure domain.
// Fields of the failure domain override fields of the machine, and fields of
// the machine override fields of the cluster.
func PlacementOf(cluster *zvirtv1.NovaZVirtClusterSpec, m *zvirtv1.NovaZVirtMachineSpec, zone string) (Placement, error) {
	s, domain, err := mergePlacements(cluster, m, zone)
	if err != nil {
		return s, err
	}
	if domain.LastInterface() >= len(m.Network.GetInterfaces()) {
		return s, hypervisor.Failure(infrav1.InvalidSpecReason, "failure domain %q has a network for interface %d, which the machine does not have", domain.Name, domain.LastInterface())
	}
	for i, in := range m.Network.GetInterfaces() {
		in.Network, in.InterfaceAddressing = domain.Connect(i, cmp.Or(in.Network, cluster.Network), &in.InterfaceAddressing)
		if in.Network == "" {
			return s, kit.InvalidSpec("network.interfaces[%d].network is not set, and neither is spec.network of the cluster", i)
		}
		s.Interfaces = append(s.Interfaces, in.In(domain.Name))
	}
	return s, nil
}

// DefaultPlacement returns the placement of VMs in a failure domain for
// machines that set no fields. It has no interfaces.
func DefaultPlacement(cluster *zvirtv1.NovaZVirtClusterSpec, zone string) (Placement, error) {
	s, _, err := mergePlacements(cluster, &zvirtv1.NovaZVirtMachineSpec{}, zone)
	return s, err
}

func mergePlacements(cluster *zvirtv1.NovaZVirtClusterSpec, m *zvirtv1.NovaZVirtMachineSpec, zone string) (Placement, zvirtv1.NovaZVirtFailureDomain, error) {
	s := Placement{
		Template: m.Template, Labels: slices.Clone(m.AffinityLabels),
		AntiAffinity: cmp.Or(m.AntiAffinity, cluster.AntiAffinity),
	}
	var domain zvirtv1.NovaZVirtFailureDomain
	if zone != "" {
		i := slices.IndexFunc(cluster.FailureDomains, func(d zvirtv1.NovaZVirtFailureDomain) bool { return d.Name == zone })
		if i < 0 {
			return s, domain, hypervisor.Failure(infrav1.PlacementNotFoundReason, "failure domain %q is not one of the cluster's spec.failureDomains", zone)
		}
		domain = cluster.FailureDomains[i]
	}
	for _, p := range []zvirtv1.NovaZVirtPlacement{domain.Placement, m.Placement, cluster.Placement} {
		s.Datacenter, s.ComputeCluster = cmp.Or(s.Datacenter, p.Datacenter), cmp.Or(s.ComputeCluster, p.ComputeCluster)
		s.StorageDomain, s.Quota = cmp.Or(s.StorageDomain, p.StorageDomain), cmp.Or(s.Quota, p.Quota)
		if len(s.Hosts) == 0 {
			s.Hosts = p.Hosts
		}
	}
	if domain.Template != (zvirtv1.NovaZVirtTemplate{}) {
		s.Template = domain.Template
	}
	if s.Template == (zvirtv1.NovaZVirtTemplate{}) {
		s.Template = cluster.Template
	}
	if domain.AffinityLabel != "" {
		s.Labels = append(s.Labels, domain.AffinityLabel)
	}
	return s, domain, nil
}

// Networks returns the networks of the interfaces.
func (s *Placement) Networks() []string {
	out := make([]string, len(s.Interfaces))
	for i := range s.Interfaces {
		out[i] = s.Interfaces[i].Network
	}
	return out
}
