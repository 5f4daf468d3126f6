package vsphere

import (
	"cmp"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// goal is where, from what and with which networks the VM of a machine is
// made, once its failure domain and its cluster have had their say.
type goal struct {
	zone       string
	placement  infrav1.NovaVSpherePlacement
	template   infrav1.NovaVSphereTemplate
	interfaces []infrav1.NovaVSphereInterface
}

// aim says where the VM of a machine goes. What the failure domain says comes
// first, then what the machine says, then what the cluster says.
func aim(cluster *infrav1.NovaVSphereClusterSpec, spec *infrav1.NovaVSphereMachineSpec, zone string) (goal, error) {
	g := goal{
		zone:       zone,
		placement:  placementIn(cluster, spec, cluster.FailureDomain(zone)),
		template:   spec.Template,
		interfaces: slices.Clone(spec.Network.GetInterfaces()),
	}
	if g.template == (infrav1.NovaVSphereTemplate{}) {
		g.template = cluster.Template
	}
	for i := range g.interfaces {
		g.interfaces[i].Network = cmp.Or(g.interfaces[i].Network, cluster.Network)
	}
	if zone == "" {
		return g, nil
	}
	domain := cluster.FailureDomain(zone)
	if domain == nil {
		return g, failure(infrav1.PlacementNotFoundReason, "the failure domain %q is not among spec.failureDomains of the NovaVSphereCluster", zone)
	}
	if domain.Template != (infrav1.NovaVSphereTemplate{}) {
		g.template = domain.Template
	}
	if last := domain.LastInterface(); last >= len(g.interfaces) {
		return g, failure(infrav1.InvalidSpecReason, "the failure domain %q has a network for interface %d, which the machine does not have", zone, last)
	}
	for i := range g.interfaces {
		in := &g.interfaces[i]
		in.Network, in.InterfaceAddressing = domain.Connect(i, in.Network, &in.InterfaceAddressing)
	}
	return g, nil
}

// placementIn is the placement of a machine in a failure domain; nil, if it has
// none.
func placementIn(cluster *infrav1.NovaVSphereClusterSpec, spec *infrav1.NovaVSphereMachineSpec, domain *infrav1.NovaVSphereFailureDomain) infrav1.NovaVSpherePlacement {
	p := spec.Placement.Over(cluster.Placement)
	if domain != nil {
		p = domain.Placement.Over(p)
	}
	return p
}

// zones are the failure domains that a machine of the cluster can be in. The
// last is none: a machine need not have one.
func (d *driver) zones() []string {
	zones := make([]string, 0, len(d.cluster.FailureDomains)+1)
	for i := range d.cluster.FailureDomains {
		zones = append(zones, d.cluster.FailureDomains[i].Name)
	}
	return append(zones, "")
}
