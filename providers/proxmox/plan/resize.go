package plan

import (
	"net/url"
	"strconv"

	"k8s.io/utils/ptr"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// Proxmox VE starts a VM with memory hot add with 1024 MiB, and adds modules to it: 32 of
// 512 MiB, 32 of twice the size, and so on.
const (
	staticMemoryMiB = 1024
	smallestModule  = 512
	modulesOfASize  = 32
	moduleSizes     = 8
)

// memoryModules returns the size of the modules by which a VM with some memory can grow,
// and the memory with all of them. It prefers larger modules that fit.
func memoryModules(memory int64) (module, most int64) {
	most = staticMemoryMiB
	for size := int64(smallestModule); size < smallestModule<<moduleSizes; size *= 2 {
		before := most
		most += size * modulesOfASize
		next := 2 * size
		switch {
		case memory >= most:
		case memory < before || (memory-before)%size != 0:
			return 0, 0 // Proxmox VE has rounded it up, so it is no multiple
		case (most-memory)%next == 0 && size < smallestModule<<(moduleSizes-1):
			return next, most + next*modulesOfASize
		default:
			return size, most
		}
	}
	return 0, 0
}

// Sizes returns the sizes of the VM of m in the list of guests.
func Sizes(m *proxmoxv1.NovaProxmoxMachine, vm *pve.Resource) []kit.Size {
	if vm.MaxCPU == 0 || vm.MaxMem == 0 {
		return nil
	}
	h := &m.Spec.Hardware
	cpus := kit.Size{Want: int64(h.CPUs), Resizable: hypervisor.Resizable{Field: resize.CPUs, Size: int64(vm.MaxCPU), MaxSize: int64(h.MaxCPUs)}}
	switch {
	case h.MaxCPUs == 0:
		cpus.Message = "the VM was created without maxCPUs"
	case cpus.MaxSize <= cpus.Size:
		cpus.MaxSize, cpus.Message = 0, "the VM has all its CPUs (maxCPUs)"
	}
	memory := kit.Size{Want: h.MemoryMiB, Resizable: hypervisor.Resizable{Field: resize.Memory, Size: vm.MaxMem >> 20}}
	if !ptr.Deref(h.MemoryHotAdd, false) {
		memory.Message = "the VM was created without memoryHotAdd"
	} else if memory.Step, memory.MaxSize = memoryModules(memory.Size); memory.MaxSize == 0 {
		memory.Message = "Proxmox VE can add no memory to this size"
	}
	all := []kit.Size{cpus, memory}
	if vm.MaxDisk >= 1<<30 {
		all = append(all, kit.BootDisk(vm.MaxDisk, m.Spec.Disks.Boot.SizeGiB, ""))
	}
	return all
}

// Resized returns the parameters of the request that increases sizes, and the options
// with them.
func Resized(due []kit.Size) url.Values {
	form := url.Values{}
	for _, size := range due {
		switch size.Field {
		case resize.CPUs:
			form.Set("vcpus", strconv.FormatInt(size.Want, 10))
		case resize.Memory:
			form.Set("memory", strconv.FormatInt(size.Want, 10))
		}
	}
	return form
}
