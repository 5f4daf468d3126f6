package vsphere

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

var _ hypervisor.Sizer[*infrav1.NovaVSphereMachineTemplate] = &Connector{}

// Size reports what machines made from t will have: what t says, and for the
// rest what the vCenter template has.
func (c *Connector) Size(ctx context.Context, t *infrav1.NovaVSphereMachineTemplate) (hypervisor.Size, error) {
	spec := &t.Spec.Template.Spec
	size := sizeOf(spec)
	name := clusterNameOf(t)
	if name == "" {
		if size.CPUs != 0 && size.MemoryBytes != 0 {
			return size, nil
		}
		e := failure(infrav1.WaitingForInfrastructureReason, "Waiting until a cluster uses the template: the vCenter template has the rest of its size")
		e.Waiting = true
		return size, e
	}
	cluster, err := c.clusterNamed(ctx, t.Namespace, name)
	if err != nil {
		return size, err
	}
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return size, err
	}
	d := &driver{session: s, cluster: &cluster.Spec, bounds: bounds}
	source, err := d.sized(ctx, spec)
	said := size.CPUs != 0 && size.MemoryBytes != 0
	switch {
	case source != nil:
		return completed(size, source), nil
	case said && (err == nil || isUnresolved(err)):
		// What is left open is not worth a group that cannot grow.
		return remembered(size, &t.Status), nil
	case err != nil:
		return size, err
	}
	e := failure(infrav1.CreatingReason, "Waiting until %s was deployed for the first machine", d.templateOf(spec))
	e.Waiting = true
	return size, e
}

// clusterNameOf is the name of the cluster that a template belongs to. Cluster
// API makes the Cluster an owner of each template that it uses.
func clusterNameOf(t *infrav1.NovaVSphereMachineTemplate) string {
	if name := t.Labels[clusterv1.ClusterNameLabel]; name != "" {
		return name
	}
	for _, owner := range t.OwnerReferences {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && group.Group == clusterv1.GroupVersion.Group && owner.Kind == "Cluster" {
			return owner.Name
		}
	}
	return ""
}

// sized is the vCenter template that machines are cloned from, in the first
// failure domain where there is one: the same size is made in all of them. Nil
// is an image that is still to be made.
func (d *driver) sized(ctx context.Context, spec *infrav1.NovaVSphereMachineSpec) (*template, error) {
	var first error
	pending := false
	for _, zone := range d.zones() {
		t, err := d.sizedIn(ctx, spec, zone)
		switch {
		case err != nil && !isUnresolved(err):
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

// templateOf describes the template of machines for people.
func (d *driver) templateOf(spec *infrav1.NovaVSphereMachineSpec) string {
	if spec.Template == (infrav1.NovaVSphereTemplate{}) {
		return d.cluster.Template.String()
	}
	return spec.Template.String()
}

// sizedIn is the same in one failure domain.
func (d *driver) sizedIn(ctx context.Context, spec *infrav1.NovaVSphereMachineSpec, zone string) (*template, error) {
	g, err := aim(d.cluster, spec, zone)
	if err != nil {
		return nil, err
	}
	at, err := d.sourceOf(ctx, &g)
	if err != nil || at == (ref{}) {
		return nil, err
	}
	return d.session.paths.templateAt(ctx, &g, at)
}

// sizeOf is what a machine's spec says of its size.
func sizeOf(spec *infrav1.NovaVSphereMachineSpec) hypervisor.Size {
	return hypervisor.Size{
		CPUs:        int64(spec.Hardware.CPUs),
		MemoryBytes: spec.Hardware.MemoryMiB << 20,
		DiskBytes:   spec.Disks.Boot.SizeGiB << 30,
		Devices:     devicesOf(&spec.Hardware),
	}
}

// makers are the names that device plugins give the graphics processors of a
// vendor.
var makers = map[int32]string{4318: "nvidia.com/gpu", 4098: "amd.com/gpu", 32902: "gpu.intel.com/i915"}

// devicesOf are the extended resources that a node will have once a device
// plugin runs on it.
func devicesOf(h *infrav1.NovaVSphereHardware) map[string]int64 {
	var out map[string]int64
	count := func(name string) {
		if out == nil {
			out = map[string]int64{}
		}
		out[name]++
	}
	for _, device := range h.PCIDevices {
		if name := makers[device.VendorID]; name != "" {
			count(name)
		}
	}
	for range h.VGPUProfiles {
		count(makers[4318]) // no other vendor's are profiles
	}
	return out
}

// completed takes what size leaves open from the template.
func completed(size hypervisor.Size, t *template) hypervisor.Size {
	if size.CPUs == 0 {
		size.CPUs = int64(t.cpus)
	}
	if size.MemoryBytes == 0 {
		size.MemoryBytes = t.memoryMiB << 20
	}
	if own := newRack(t.devices).disks; size.DiskBytes == 0 && len(own) > 0 {
		size.DiskBytes = bytesOf(own[0])
	}
	size.Architecture = architecture(t.guest)
	return size
}

// remembered takes from the status what was known of the template before.
func remembered(size hypervisor.Size, was *infrav1.MachineTemplateStatus) hypervisor.Size {
	if size.DiskBytes == 0 {
		size.DiskBytes = was.Capacity.StorageEphemeral().Value()
	}
	size.Architecture = was.NodeInfo.Architecture
	return size
}

// architecture is that of a guest, by vCenter's name for its system.
func architecture(guest string) string {
	switch guest = strings.ToLower(guest); {
	case strings.Contains(guest, "arm"):
		return "arm64"
	case strings.Contains(guest, "64"):
		return "amd64"
	}
	return ""
}
