package spec

import (
	"slices"

	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// maxCPUs is the largest number of CPUs of a VM in the API. vCenter has lower limits
// for older hardware versions and smaller hosts.
const maxCPUs = 768

// Sizes are the sizes of a VM that vCenter reports.
type Sizes struct {
	CPUs, CoresPerSocket, MemoryMiB int64
	// CPUHotAdd and MemoryHotAdd are one if CPUs and memory can be added while the VM
	// runs: memory up to MaxMemoryMiB, in multiples of MemoryStepMiB.
	CPUHotAdd, MemoryHotAdd     int64
	MaxMemoryMiB, MemoryStepMiB int64
	// BootDisk is the first disk; nil if there is none. FixedDisk is why vCenter cannot
	// extend it while the VM runs.
	BootDisk  *types.VirtualDisk
	FixedDisk string
}

// SetDevices stores the boot disk among the devices of the VM.
func (s *Sizes) SetDevices(devices []types.BaseVirtualDevice) {
	s.BootDisk, s.FixedDisk = nil, ""
	found := NewDiskDevices(devices)
	if len(found.Disks) == 0 {
		return
	}
	s.BootDisk = found.Disks[0]
	flat, is := s.BootDisk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	switch {
	case is && flat.Parent != nil:
		s.FixedDisk = "the VM has a snapshot or is a linked clone"
	case found.bootController().family == ide:
		s.FixedDisk = "the disk has an IDE controller"
	}
}

// Of returns the sizes of the VM of m, once vCenter has reported them.
func (s *Sizes) Of(m *vspherev1.NovaVSphereMachine) []kit.Size {
	if s.CPUs == 0 || s.MemoryMiB == 0 {
		return nil
	}
	h := &m.Spec.Hardware
	cpus := kit.Size{Want: int64(h.CPUs), Resizable: hypervisor.Resizable{Field: resize.CPUs, Size: s.CPUs, MaxSize: maxCPUs, Step: s.CoresPerSocket}}
	memory := kit.Size{Want: h.MemoryMiB, Resizable: hypervisor.Resizable{Field: resize.Memory, Size: s.MemoryMiB, MaxSize: s.MaxMemoryMiB, Step: s.MemoryStepMiB}}
	switch {
	case len(h.PCIDevices) > 0 || len(h.VGPUProfiles) > 0 || slices.ContainsFunc(m.Spec.Network.Interfaces, func(i vspherev1.NovaVSphereInterface) bool { return i.Type == vspherev1.InterfaceSRIOV }):
		cpus.Message = "the VM has devices of its host"
		memory.Message = cpus.Message
	default:
		if s.CPUHotAdd == 0 {
			cpus.Message = "CPU hot add is not enabled for the VM (cpuHotAdd)"
		}
		if s.MemoryHotAdd == 0 {
			memory.Message = "memory hot add is not enabled for the VM (memoryHotAdd)"
		} else if s.MaxMemoryMiB <= s.MemoryMiB {
			memory.Message = "vCenter can add no more memory to the VM"
		}
	}
	for _, size := range []*kit.Size{&cpus, &memory} {
		if size.Message != "" {
			size.MaxSize, size.Step = 0, 0
		}
	}
	all := []kit.Size{cpus, memory}
	if s.BootDisk != nil && capacity(s.BootDisk) >= 1<<30 {
		all = append(all, kit.BootDisk(capacity(s.BootDisk), m.Spec.Disks.Boot.SizeGiB, s.FixedDisk))
	}
	return all
}

// capacity returns the size of a disk in bytes. Old versions of vCenter report KiB only.
func capacity(d *types.VirtualDisk) int64 { return max(d.CapacityInBytes, d.CapacityInKB<<10) }

// ResizeConfig returns the settings that increase sizes.
func (s *Sizes) ResizeConfig(due []kit.Size) types.VirtualMachineConfigSpec {
	config := types.VirtualMachineConfigSpec{}
	for _, size := range due {
		switch size.Field {
		case resize.CPUs:
			config.NumCPUs = int32(size.Want)
		case resize.Memory:
			config.MemoryMB = size.Want
		case resize.BootDisk:
			disk := *s.BootDisk
			disk.CapacityInKB, disk.CapacityInBytes = size.Want<<20, size.Want<<30
			config.DeviceChange = append(config.DeviceChange, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &disk})
		}
	}
	return config
}
