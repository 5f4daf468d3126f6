package vsphere

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/resolve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

var _ hypervisor.Sizer[*vspherev1.NovaVSphereMachineTemplate] = &Connector{}

// Size returns the size of machines that are created from t: the values of t,
// and those of the vCenter template for values that t does not set.
func (c *Connector) Size(ctx context.Context, t *vspherev1.NovaVSphereMachineTemplate) (hypervisor.Size, error) {
	machine := &t.Spec.Template.Spec
	size := spec.SizeOf(machine)
	if t.Labels[clusterv1.ClusterNameLabel] == "" {
		if size.CPUs != 0 && size.MemoryBytes != 0 {
			return size, nil
		}
		return size, hypervisor.Waiting(infrav1.WaitingForInfrastructureReason, "Waiting until a cluster uses the template: the vCenter template has the rest of its size")
	}
	cluster, err := c.findCluster(ctx, t)
	if err != nil {
		return size, err
	}
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return size, err
	}
	source, err := sizeTemplate(ctx, resolve.NewResolver(s.names, &cluster.Spec, bounds), &cluster.Spec, machine)
	said := size.CPUs != 0 && size.MemoryBytes != 0
	switch {
	case source != nil:
		return spec.AddTemplateSize(size, source), nil
	case said && (err == nil || resolve.IsUnresolved(err)):
		// The values that t leaves open are not worth blocking the autoscaling
		// of the group.
		return spec.AddKnownSize(size, &t.Status), nil
	case err != nil:
		return size, err
	}
	return size, hypervisor.Waiting(infrav1.CreatingReason, "Waiting until %s was deployed for the first machine", templateOf(&cluster.Spec, machine))
}

// sizeTemplate returns the vCenter template from which machines are cloned, in
// the first failure domain that has one: machines have the same size in all of
// them. It returns nil for an image that does not exist yet.
func sizeTemplate(ctx context.Context, names *resolve.Resolver, cluster *vspherev1.NovaVSphereClusterSpec, machine *vspherev1.NovaVSphereMachineSpec) (*spec.Template, error) {
	var first error
	pending := false
	for _, zone := range spec.Zones(cluster) {
		t, err := names.SizeTemplate(ctx, machine, zone)
		switch {
		case err != nil && !resolve.IsUnresolved(err):
			return nil, err
		case err == nil && t != nil:
			return t, nil
		case err == nil:
			pending = true
		case first == nil && zone != "":
			first = inDomain(zone, err)
		case first == nil:
			first = err
		}
	}
	if pending {
		first = nil
	}
	return nil, first
}

// templateOf describes the template of machines in messages.
func templateOf(cluster *vspherev1.NovaVSphereClusterSpec, machine *vspherev1.NovaVSphereMachineSpec) string {
	if machine.Template == (vspherev1.NovaVSphereTemplate{}) {
		return cluster.Template.String()
	}
	return machine.Template.String()
}
