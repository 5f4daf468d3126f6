package vsphere

import (
	"cmp"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// effectiveSpec has the placement, the template and the networks of a machine's
// VM, with the settings of its failure domain and its cluster applied.
type effectiveSpec struct {
	zone       string
	placement  infrav1.NovaVSpherePlacement
	template   infrav1.NovaVSphereTemplate
	interfaces []infrav1.NovaVSphereInterface
}

// newEffectiveSpec returns the placement, template and networks of a machine's
// VM. Settings of the failure domain take precedence over those of the machine,
// and these over those of the cluster.
func newEffectiveSpec(cluster *infrav1.NovaVSphereClusterSpec, spec *infrav1.NovaVSphereMachineSpec, zone string) (effectiveSpec, error) {
	g := effectiveSpec{
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
		return g, hypervisor.Failure(infrav1.PlacementNotFoundReason, "the failure domain %q is not among spec.failureDomains of the NovaVSphereCluster", zone)
	}
	if domain.Template != (infrav1.NovaVSphereTemplate{}) {
		g.template = domain.Template
	}
	if last := domain.LastInterface(); last >= len(g.interfaces) {
		return g, hypervisor.Failure(infrav1.InvalidSpecReason, "the failure domain %q has a network for interface %d, which the machine does not have", zone, last)
	}
	for i := range g.interfaces {
		in := &g.interfaces[i]
		in.Network, in.InterfaceAddressing = domain.Connect(i, in.Network, &in.InterfaceAddressing)
		*in = in.In(domain.Name)
	}
	return g, nil
}

// placementIn returns the placement of a machine in a failure domain; nil if
// it has none.
func placementIn(cluster *infrav1.NovaVSphereClusterSpec, spec *infrav1.NovaVSphereMachineSpec, domain *infrav1.NovaVSphereFailureDomain) infrav1.NovaVSpherePlacement {
	p := spec.Placement.Over(cluster.Placement)
	if domain != nil {
		p = domain.Placement.Over(p)
	}
	return p
}

// zones returns the failure domains in which a machine of the cluster can be.
// The last is empty: a machine need not have one.
func (d *driver) zones() []string {
	zones := make([]string, 0, len(d.cluster.FailureDomains)+1)
	for i := range d.cluster.FailureDomains {
		zones = append(zones, d.cluster.FailureDomains[i].Name)
	}
	return append(zones, "")
}
