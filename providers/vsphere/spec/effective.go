package spec

import (
	"cmp"
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Effective has the placement, the template and the networks of a machine's
// VM, with the settings of its failure domain and its cluster applied.
type Effective struct {
	zone       string
	Placement  vspherev1.NovaVSpherePlacement
	Template   vspherev1.NovaVSphereTemplate
	Interfaces []vspherev1.NovaVSphereInterface
}

// NewEffective returns the placement, template and networks of a machine's
// VM. Settings of the failure domain take precedence over those of the machine,
// and these over those of the cluster.
func NewEffective(cluster *vspherev1.NovaVSphereClusterSpec, spec *vspherev1.NovaVSphereMachineSpec, zone string) (Effective, error) {
	g := Effective{
		zone:       zone,
		Placement:  placementIn(cluster, spec, cluster.FailureDomain(zone)),
		Template:   spec.Template,
		Interfaces: slices.Clone(spec.Network.GetInterfaces()),
	}
	if g.Template == (vspherev1.NovaVSphereTemplate{}) {
		g.Template = cluster.Template
	}
	for i := range g.Interfaces {
		g.Interfaces[i].Network = cmp.Or(g.Interfaces[i].Network, cluster.Network)
	}
	if zone == "" {
		return g, nil
	}
	domain := cluster.FailureDomain(zone)
	if domain == nil {
		return g, hypervisor.Failure(infrav1.PlacementNotFoundReason, "the failure domain %q is not among spec.failureDomains of the NovaVSphereCluster", zone)
	}
	if domain.Template != (vspherev1.NovaVSphereTemplate{}) {
		g.Template = domain.Template
	}
	if last := domain.LastInterface(); last >= len(g.Interfaces) {
		return g, hypervisor.Failure(infrav1.InvalidSpecReason, "the failure domain %q has a network for interface %d, which the machine does not have", zone, last)
	}
	for i := range g.Interfaces {
		in := &g.Interfaces[i]
		in.Network, in.InterfaceAddressing = domain.Connect(i, in.Network, &in.InterfaceAddressing)
		*in = in.In(domain.Name)
	}
	return g, nil
}

// placementIn returns the placement of a machine in a failure domain; nil if
// it has none.
func placementIn(cluster *vspherev1.NovaVSphereClusterSpec, spec *vspherev1.NovaVSphereMachineSpec, domain *vspherev1.NovaVSphereFailureDomain) vspherev1.NovaVSpherePlacement {
	p := spec.Placement.Over(cluster.Placement)
	if domain != nil {
		p = domain.Placement.Over(p)
	}
	return p
}

// Zones returns the failure domains in which a machine of the cluster can be.
// The last is empty: a machine need not have one.
func Zones(cluster *vspherev1.NovaVSphereClusterSpec) []string {
	zones := make([]string, 0, len(cluster.FailureDomains)+1)
	for i := range cluster.FailureDomains {
		zones = append(zones, cluster.FailureDomains[i].Name)
	}
	return append(zones, "")
}
