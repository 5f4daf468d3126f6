package vsphere

import (
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// goal is where, from what and with which networks the VM of a machine is
// made, once its failure domain and its cluster have had their say.
type goal struct {
	zone       string
	placement  infrav1.NovaVSpherePlacement
	template   string
	source     infrav1.NovaVSphereSource
	interfaces []infrav1.NovaVSphereInterface
}

// aim says where the VM of a machine goes. What the failure domain says comes
// first, then what the machine says, then what the cluster says.
func aim(cluster *infrav1.NovaVSphereClusterSpec, spec *infrav1.NovaVSphereMachineSpec, zone string) (goal, error) {
	g := goal{
		zone:       zone,
		placement:  placementIn(cluster, spec, cluster.FailureDomain(zone)),
		template:   spec.Template,
		source:     spec.Source,
		interfaces: spec.Network.Interfaces,
	}
	if zone == "" {
		return g, nil
	}
	domain := cluster.FailureDomain(zone)
	if domain == nil {
		return g, failure(infrav1.PlacementNotFoundReason, "the failure domain %q is not among spec.failureDomains of the NovaVSphereCluster", zone)
	}
	if domain.Template != "" || domain.Source != (infrav1.NovaVSphereSource{}) {
		g.template, g.source = domain.Template, domain.Source
	}
	var err error
	g.interfaces, err = rewired(g.interfaces, domain)
	if err != nil {
		return g, err
	}
	g.interfaces = slices.Clone(g.interfaces)
	for i := range g.interfaces {
		g.interfaces[i].InterfaceAddressing = *g.interfaces[i].In(zone)
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

// rewired connects interfaces to the networks of a failure domain.
func rewired(interfaces []infrav1.NovaVSphereInterface, domain *infrav1.NovaVSphereFailureDomain) ([]infrav1.NovaVSphereInterface, error) {
	if len(domain.Networks) == 0 {
		return interfaces, nil
	}
	out := make([]infrav1.NovaVSphereInterface, len(interfaces))
	for i := range interfaces {
		interfaces[i].DeepCopyInto(&out[i])
	}
	for _, n := range domain.Networks {
		first, last := 0, len(out)-1
		if n.Interface != nil {
			first, last = int(*n.Interface), int(*n.Interface)
		}
		if last >= len(out) {
			return nil, failure(infrav1.InvalidSpecReason, "the failure domain %q has a network for interface %d, which the machine does not have", domain.Name, last)
		}
		for i := first; i <= last; i++ {
			out[i].Network = n.Network
			if n.Nameservers != nil {
				out[i].Nameservers = n.Nameservers
			}
			if n.SearchDomains != nil {
				out[i].SearchDomains = n.SearchDomains
			}
		}
	}
	return out, nil
}

// sourceName says for people what the VM is made from.
func (g *goal) sourceName() string {
	spec := infrav1.NovaVSphereMachineSpec{Template: g.template, Source: g.source}
	return spec.SourceName()
}
