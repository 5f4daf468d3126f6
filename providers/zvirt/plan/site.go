package plan

import (
	"cmp"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// Site is where a VM goes, in names.
type Site struct {
	infrav1.NovaZVirtPlacement

	Template infrav1.NovaZVirtTemplate
	// Interfaces are the network interfaces of the machine, in order, as its failure
	// domain connects them. Each has a network: a vNIC profile.
	Interfaces []infrav1.NovaZVirtInterface
	// AntiAffinity is empty for the default.
	AntiAffinity infrav1.AntiAffinity
	// Labels are the affinity labels of the machine and its failure domain.
	Labels []string
}

// SiteOf returns where and how the VM of a machine is created in a failure domain.
// Fields of the failure domain replace those of the machine, and these replace those of
// the cluster.
func SiteOf(cluster *infrav1.NovaZVirtClusterSpec, m *infrav1.NovaZVirtMachineSpec, zone string) (Site, error) {
	s, domain, err := place(cluster, m, zone)
	if err != nil {
		return s, err
	}
	if domain.LastInterface() >= len(m.Network.GetInterfaces()) {
		return s, Failure(infrav1.InvalidSpecReason, "failure domain %q has a network for interface %d, which the machine does not have", domain.Name, domain.LastInterface())
	}
	for i, in := range m.Network.GetInterfaces() {
		in.Network, in.InterfaceAddressing = domain.Connect(i, cmp.Or(in.Network, cluster.Network), &in.InterfaceAddressing)
		if in.Network == "" {
			return s, hopeless("network.interfaces[%d].network is not set, and neither is spec.network of the cluster", i)
		}
		s.Interfaces = append(s.Interfaces, in)
	}
	return s, nil
}

// DefaultSite returns where the VMs of machines are created in a failure domain, for
// machines that set nothing. It has no interfaces.
func DefaultSite(cluster *infrav1.NovaZVirtClusterSpec, zone string) (Site, error) {
	s, _, err := place(cluster, &infrav1.NovaZVirtMachineSpec{}, zone)
	return s, err
}

func place(cluster *infrav1.NovaZVirtClusterSpec, m *infrav1.NovaZVirtMachineSpec, zone string) (Site, infrav1.NovaZVirtFailureDomain, error) {
	s := Site{
		Template: m.Template, Labels: slices.Clone(m.AffinityLabels),
		AntiAffinity: cmp.Or(m.AntiAffinity, cluster.AntiAffinity),
	}
	var domain infrav1.NovaZVirtFailureDomain
	if zone != "" {
		i := slices.IndexFunc(cluster.FailureDomains, func(d infrav1.NovaZVirtFailureDomain) bool { return d.Name == zone })
		if i < 0 {
			return s, domain, Failure(infrav1.PlacementNotFoundReason, "failure domain %q is not one of the cluster's spec.failureDomains", zone)
		}
		domain = cluster.FailureDomains[i]
	}
	for _, p := range []infrav1.NovaZVirtPlacement{domain.Placement, m.Placement, cluster.Placement} {
		s.Datacenter, s.ComputeCluster = cmp.Or(s.Datacenter, p.Datacenter), cmp.Or(s.ComputeCluster, p.ComputeCluster)
		s.StorageDomain, s.Quota = cmp.Or(s.StorageDomain, p.StorageDomain), cmp.Or(s.Quota, p.Quota)
		if len(s.Hosts) == 0 {
			s.Hosts = p.Hosts
		}
	}
	if domain.Template != (infrav1.NovaZVirtTemplate{}) {
		s.Template = domain.Template
	}
	if s.Template == (infrav1.NovaZVirtTemplate{}) {
		s.Template = cluster.Template
	}
	if domain.AffinityLabel != "" {
		s.Labels = append(s.Labels, domain.AffinityLabel)
	}
	return s, domain, nil
}

// Networks returns the networks of the interfaces.
func (s *Site) Networks() []string {
	out := make([]string, len(s.Interfaces))
	for i := range s.Interfaces {
		out[i] = s.Interfaces[i].Network
	}
	return out
}
