package zvirt

import (
	"net/http"

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// The engine adds CPUs as whole sockets, at most 16 up to compatibility version 4.5,
// and memory in multiples of 256 MiB.
const (
	maxSockets    = 16
	memoryStepMiB = 256
)

// sizes returns the CPUs and the memory of the VM of m.
func sizes(m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM) []kit.Size {
	if vm.CPU == nil || vm.CPU.Topology == nil || vm.Memory == 0 {
		return nil
	}
	t, h := vm.CPU.Topology, &m.Spec.Hardware
	cpus := kit.Size{Want: int64(h.CPUs), Resizable: hypervisor.Resizable{
		Field: resize.CPUs, Size: t.Sockets * t.Cores * t.Threads, MaxSize: maxSockets * t.Cores * t.Threads, Step: t.Cores * t.Threads,
	}}
	if policy := vm.CPUPinningPolicy; policy != "" && policy != "none" {
		cpus.MaxSize, cpus.Step, cpus.Message = 0, 0, "the CPUs of the VM are pinned (cpuPinningPolicy)"
	}
	memory := kit.Size{Want: h.MemoryMiB, Resizable: hypervisor.Resizable{Field: resize.Memory, Size: vm.Memory >> 20, Step: memoryStepMiB}}
	if vm.MemoryPolicy != nil {
		memory.MaxSize = vm.MemoryPolicy.Max >> 20
	}
	switch {
	case h.HugepagesKiB != 0:
		memory.MaxSize, memory.Step, memory.Message = 0, 0, "the memory of the VM is backed by huge pages"
	case memory.MaxSize <= memory.Size:
		memory.MaxSize, memory.Step, memory.Message = 0, 0, "the VM has its maximum memory (maxMemoryMiB)"
	}
	return []kit.Size{cpus, memory}
}

// allSizes returns the sizes of the VM of m and of its boot disk, once all are known.
func allSizes(m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM) []kit.Size {
	all := sizes(m, vm)
	if all == nil || vm.DiskAttachments == nil {
		return nil
	}
	if disk := plan.BootDisk(vm); disk != nil && disk.ProvisionedSize >= 1<<30 {
		all = append(all, kit.BootDisk(disk.ProvisionedSize, m.Spec.Disks.Boot.SizeGiB, ""))
	}
	return all
}

// increase returns the step that increases sizes of a VM that runs. The engine returns
// the VM as it runs: if it could not change the VM, it stores the sizes for the next
// start, and reports no error.
func increase(m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, due []kit.Size) (step *plan.Step, result *ovirt.VM) {
	body, result := ovirt.VM{}, &ovirt.VM{}
	for _, size := range due {
		switch size.Field {
		case resize.CPUs:
			topology := *vm.CPU.Topology
			topology.Sockets = size.Want / (topology.Cores * topology.Threads)
			body.CPU = &ovirt.CPU{Topology: &topology}
		case resize.Memory:
			body.Memory = size.Want << 20
			if m.Spec.Hardware.MemoryReservationMiB == 0 {
				// A kubelet assumes that the memory that it reads is available.
				body.MemoryPolicy = &ovirt.MemoryPolicy{Guaranteed: body.Memory}
			}
		}
	}
	return &plan.Step{
		Part: hypervisor.Resize, Description: kit.IncreaseText(due),
		Request: ovirt.Request{Method: http.MethodPut, Path: []string{"vms", vm.ID}, Body: body, Into: result},
		Apply: func(vm *ovirt.VM) {
			if result.CPU != nil && result.Memory != 0 {
				vm.CPU, vm.Memory, vm.MemoryPolicy = result.CPU, result.Memory, result.MemoryPolicy
			}
		},
	}, result
}
