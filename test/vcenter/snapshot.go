package vcenter

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	methodSuspend         = "SuspendVM_Task"
	methodSnapshot        = "CreateSnapshot_Task"
	methodRemoveSnapshots = "RemoveAllSnapshots_Task"
	methodConsolidate     = "ConsolidateVMDisks_Task"
)

// SuspendVMTask stops a VM and keeps what it has in memory.
func (o *operations) SuspendVMTask(ctx *simulator.Context, req *types.SuspendVM_Task) soap.HasFault {
	body := &methods.SuspendVM_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodSuspend, poweredOn, suspended, func(vm *simulator.VirtualMachine) *failure {
		if o.s.opts.Guests != nil {
			if err := o.s.opts.Guests.PowerOff(o.s.ctx, o.s.snapshot(vm), false); err != nil {
				return guestFailure(err)
			}
		}
		o.s.locked(func(ctx *simulator.Context) { setPower(ctx, vm, suspended) })
		return nil
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.SuspendVM_TaskResponse{Returnval: ref}
	}
	return body
}

// CreateSnapshotTask takes a snapshot of a VM and its disks.
func (o *operations) CreateSnapshotTask(ctx *simulator.Context, req *types.CreateSnapshot_Task) soap.HasFault {
	body := &methods.CreateSnapshot_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodSnapshot, "", "", func(vm *simulator.VirtualMachine) (refused *failure) {
		o.s.locked(func(ctx *simulator.Context) {
			_, refused = o.s.inner(ctx, func() types.ManagedObjectReference {
				return vm.CreateSnapshotTask(ctx, req).(*methods.CreateSnapshot_TaskBody).Res.Returnval
			})
		})
		return refused
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.CreateSnapshot_TaskResponse{Returnval: ref}
	}
	return body
}

// RemoveAllSnapshotsTask removes a VM's snapshots. The disks that only they
// have go with them.
func (o *operations) RemoveAllSnapshotsTask(ctx *simulator.Context, req *types.RemoveAllSnapshots_Task) soap.HasFault {
	body := &methods.RemoveAllSnapshots_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodRemoveSnapshots, "", "", func(vm *simulator.VirtualMachine) (refused *failure) {
		o.s.locked(func(ctx *simulator.Context) {
			files := withoutFiles(snapshotDisks(ctx, vm), disksOf(vm.Config.Hardware.Device))
			_, refused = o.s.inner(ctx, func() types.ManagedObjectReference {
				return vm.RemoveAllSnapshotsTask(ctx, req).(*methods.RemoveAllSnapshots_TaskBody).Res.Returnval
			})
			if refused == nil {
				removeFiles(ctx, files)
			}
		})
		return refused
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.RemoveAllSnapshots_TaskResponse{Returnval: ref}
	}
	return body
}

// ConsolidateVMDisksTask merges what removed snapshots left behind.
func (o *operations) ConsolidateVMDisksTask(ctx *simulator.Context, req *types.ConsolidateVMDisks_Task) soap.HasFault {
	body := &methods.ConsolidateVMDisks_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodConsolidate, "", "", func(vm *simulator.VirtualMachine) *failure {
		o.s.locked(func(*simulator.Context) {
			vm.Runtime.ConsolidationNeeded = false
		})
		return nil
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.ConsolidateVMDisks_TaskResponse{Returnval: ref}
	}
	return body
}

// SetConsolidationNeeded says that a VM's disks have parts of snapshots that
// were removed.
func (s *Server) SetConsolidationNeeded(id string, needed bool) error {
	return s.changeVM(id, func(_ *simulator.Context, vm *simulator.VirtualMachine) {
		vm.Runtime.ConsolidationNeeded = needed
	})
}

// snapshotDisks are the files of the disks that a VM's snapshots have.
func snapshotDisks(ctx *simulator.Context, vm *simulator.VirtualMachine) []string {
	if vm.Snapshot == nil {
		return nil
	}
	var files []string
	var walk func([]types.VirtualMachineSnapshotTree)
	walk = func(trees []types.VirtualMachineSnapshotTree) {
		for _, tree := range trees {
			if s, ok := ctx.Map.Get(tree.Snapshot).(*simulator.VirtualMachineSnapshot); ok {
				files = append(files, disksOf(s.Config.Hardware.Device)...)
			}
			walk(tree.ChildSnapshotList)
		}
	}
	walk(vm.Snapshot.RootSnapshotList)
	return files
}

func disksOf(devices []types.BaseVirtualDevice) []string {
	var files []string
	for _, device := range devices {
		disk, ok := device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		if b, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
			files = append(files, b.GetVirtualDeviceFileBackingInfo().FileName)
		}
	}
	return files
}

func withoutFiles(files, drop []string) []string {
	return slices.DeleteFunc(files, func(f string) bool { return slices.Contains(drop, f) })
}
