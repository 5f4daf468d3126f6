package plan

import (
	"cmp"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// Site is where a VM goes, in names.
type Site struct {
	infrav1.NovaZVirtPlacement

	Template infrav1.NovaZVirtTemplateReference
	// Profiles are the vNIC profiles of the interfaces, in order.
	Profiles []string
	// Labels are the affinity labels of the machine and its failure domain.
	Labels []string
}

// SiteOf says where a machine of a cluster goes. What its failure domain says
// goes before what it says itself, and that before what the cluster says.
func SiteOf(cluster *infrav1.NovaZVirtClusterSpec, m *infrav1.NovaZVirtMachineSpec, zone string) (Site, error) {
	s := Site{Template: m.Template, Labels: slices.Clone(m.Affinity.Labels)}
	var domain infrav1.NovaZVirtFailureDomain
	if zone != "" {
		i := slices.IndexFunc(cluster.FailureDomains, func(d infrav1.NovaZVirtFailureDomain) bool { return d.Name == zone })
		if i < 0 {
			return s, Failure(infrav1.PlacementNotFoundReason, "failure domain %q is not one of the cluster's spec.failureDomains", zone)
		}
		domain = cluster.FailureDomains[i]
	}
	for _, p := range []infrav1.NovaZVirtPlacement{domain.Placement, m.Placement, cluster.Placement} {
		s.DataCenter, s.Cluster = cmp.Or(s.DataCenter, p.DataCenter), cmp.Or(s.Cluster, p.Cluster)
		s.StorageDomain, s.Quota = cmp.Or(s.StorageDomain, p.StorageDomain), cmp.Or(s.Quota, p.Quota)
		if len(s.Hosts) == 0 {
			s.Hosts = p.Hosts
		}
	}
	if domain.Template != (infrav1.NovaZVirtTemplateReference{}) {
		s.Template = domain.Template
	}
	if domain.AffinityLabel != "" {
		s.Labels = append(s.Labels, domain.AffinityLabel)
	}
	for i := range m.Network.Interfaces {
		profile := cmp.Or(m.Network.Interfaces[i].VNICProfile, cluster.VNICProfile)
		if i < len(domain.VNICProfiles) {
			profile = domain.VNICProfiles[i]
		}
		if profile == "" {
			return s, hopeless("network.interfaces[%d].vnicProfile is empty and the cluster's spec.vnicProfile is, too", i)
		}
		s.Profiles = append(s.Profiles, profile)
	}
	return s, nil
}
