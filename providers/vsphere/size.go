package vsphere

import (
	"context"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

var _ hypervisor.Sizer[*infrav1.NovaVSphereMachineTemplate] = &Connector{}

// Size returns the size of machines that are created from t: the values of t,
// and those of the vCenter template for values that t does not set.
func (c *Connector) Size(ctx context.Context, t *infrav1.NovaVSphereMachineTemplate) (hypervisor.Size, error) {
	spec := &t.Spec.Template.Spec
	size := sizeOf(spec)
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
	d := &driver{session: s, cluster: &cluster.Spec, bounds: bounds}
	source, err := d.sizeTemplate(ctx, spec)
	said := size.CPUs != 0 && size.MemoryBytes != 0
	switch {
	case source != nil:
		return addTemplateSize(size, source), nil
	case said && (err == nil || isUnresolved(err)):
		// The values that t leaves open are not worth blocking the autoscaling
		// of the group.
		return addKnownSize(size, &t.Status), nil
	case err != nil:
		return size, err
	}
	return size, hypervisor.Waiting(infrav1.CreatingReason, "Waiting until %s was deployed for the first machine", d.templateOf(spec))
}

// sizeTemplate returns the vCenter template from which machines are cloned, in
// the first failure domain that has one: machines have the same size in all of
// them. It returns nil for an image that does not exist yet.
func (d *driver) sizeTemplate(ctx context.Context, spec *infrav1.NovaVSphereMachineSpec) (*template, error) {
	var first error
	pending := false
	for _, zone := range d.zones() {
		t, err := d.sizeTemplateIn(ctx, spec, zone)
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

// templateOf describes the template of machines in messages.
func (d *driver) templateOf(spec *infrav1.NovaVSphereMachineSpec) string {
	if spec.Template == (infrav1.NovaVSphereTemplate{}) {
		return d.cluster.Template.String()
	}
	return spec.Template.String()
}

// sizeTemplateIn is sizeTemplate for one failure domain.
func (d *driver) sizeTemplateIn(ctx context.Context, spec *infrav1.NovaVSphereMachineSpec, zone string) (*template, error) {
	g, err := newEffectiveSpec(d.cluster, spec, zone)
	if err != nil {
		return nil, err
	}
	at, err := d.templateRef(ctx, &g)
	if err != nil || at == (ref{}) {
		return nil, err
	}
	return d.session.resolver.templateAt(ctx, &g, at)
}

// sizeOf returns the size that a machine's spec sets.
func sizeOf(spec *infrav1.NovaVSphereMachineSpec) hypervisor.Size {
	return hypervisor.Size{
		CPUs:        int64(spec.Hardware.CPUs),
		MemoryBytes: spec.Hardware.MemoryMiB << 20,
		DiskBytes:   spec.Disks.Boot.SizeGiB << 30,
		Devices:     devicesOf(&spec.Hardware),
	}
}

// gpuResources maps PCI vendor IDs to the resource names that device plugins
// use for the GPUs of the vendor.
var gpuResources = map[int32]string{4318: "nvidia.com/gpu", 4098: "amd.com/gpu", 32902: "gpu.intel.com/i915"}

// devicesOf returns the extended resources of a node once a device plugin runs
// on it.
func devicesOf(h *infrav1.NovaVSphereHardware) map[string]int64 {
	var out map[string]int64
	count := func(name string) {
		if out == nil {
			out = map[string]int64{}
		}
		out[name]++
	}
	for _, device := range h.PCIDevices {
		if name := gpuResources[device.VendorID]; name != "" {
			count(name)
		}
	}
	for range h.VGPUProfiles {
		count(gpuResources[4318]) // only this vendor has profiles
	}
	return out
}

// addTemplateSize adds the values that size does not have, from the template.
func addTemplateSize(size hypervisor.Size, t *template) hypervisor.Size {
	if size.CPUs == 0 {
		size.CPUs = int64(t.cpus)
	}
	if size.MemoryBytes == 0 {
		size.MemoryBytes = t.memoryMiB << 20
	}
	if own := newDiskDevices(t.devices).disks; size.DiskBytes == 0 && len(own) > 0 {
		size.DiskBytes = capacityOf(own[0])
	}
	size.Architecture = architecture(t.guest)
	return size
}

// addKnownSize sets the values that the status has from an earlier read of the
// template.
func addKnownSize(size hypervisor.Size, was *infrav1.MachineTemplateStatus) hypervisor.Size {
	if size.DiskBytes == 0 {
		size.DiskBytes = was.Capacity.StorageEphemeral().Value()
	}
	size.Architecture = was.NodeInfo.Architecture
	return size
}

// architecture returns the CPU architecture of a guest by vCenter's guest ID.
func architecture(guest string) string {
	switch guest = strings.ToLower(guest); {
	case strings.Contains(guest, "arm"):
		return "arm64"
	case strings.Contains(guest, "64"):
		return "amd64"
	}
	return ""
}
