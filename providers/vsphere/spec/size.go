package spec

import (
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// SizeOf returns the size that a machine's spec sets.
func SizeOf(spec *vspherev1.NovaVSphereMachineSpec) hypervisor.Size {
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
func devicesOf(h *vspherev1.NovaVSphereHardware) map[string]int64 {
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

// AddTemplateSize adds the values that size does not have, from the template.
func AddTemplateSize(size hypervisor.Size, t *Template) hypervisor.Size {
	if size.CPUs == 0 {
		size.CPUs = int64(t.cpus)
	}
	if size.MemoryBytes == 0 {
		size.MemoryBytes = t.memoryMiB << 20
	}
	if own := NewDiskDevices(t.devices).Disks; size.DiskBytes == 0 && len(own) > 0 {
		size.DiskBytes = capacityOf(own[0])
	}
	size.Architecture = architecture(t.guest)
	return size
}

// AddKnownSize sets the values that the status has from an earlier read of the
// template.
func AddKnownSize(size hypervisor.Size, was *infrav1.MachineTemplateStatus) hypervisor.Size {
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
