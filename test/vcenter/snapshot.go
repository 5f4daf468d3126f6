package vcenter

import (
	"bytes"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

const (
	methodSuspend         = "SuspendVM_Task"
	methodSnapshot        = "CreateSnapshot_Task"
	methodRemoveSnapshot  = "RemoveSnapshot_Task"
	methodRemoveSnapshots = "RemoveAllSnapshots_Task"
	methodRevert          = "RevertToSnapshot_Task"
	methodRevertToCurrent = "RevertToCurrentSnapshot_Task"
	methodConsolidate     = "ConsolidateVMDisks_Task"
)

// SuspendVMTask stops a VM and keeps its memory.
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

// CreateSnapshotTask takes a snapshot of a VM and its disks. The snapshot is the
// result of the task.
func (o *operations) CreateSnapshotTask(ctx *simulator.Context, req *types.CreateSnapshot_Task) soap.HasFault {
	body := &methods.CreateSnapshot_TaskBody{}
	ref, fault := o.vmTaskWithResult(ctx, req.This, methodSnapshot, "", "", func(vm *simulator.VirtualMachine) (made types.AnyType, refused *failure) {
		o.s.locked(func(ctx *simulator.Context) {
			made, refused = o.s.inner(ctx, func() types.ManagedObjectReference {
				return vm.CreateSnapshotTask(ctx, req).(*methods.CreateSnapshot_TaskBody).Res.Returnval
			})
		})
		return made, refused
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

// snapshotTask starts a task of the VM that a snapshot is of.
func (o *operations) snapshotTask(
	ctx *simulator.Context, at ref, method string, run func(*simulator.VirtualMachine, *simulator.VirtualMachineSnapshot) *failure,
) (ref, *soap.Fault) {
	snapshot, ok := ctx.Map.Get(at).(*simulator.VirtualMachineSnapshot)
	if !ok {
		return ref{}, soapFault(notFound(at))
	}
	return o.vmTask(ctx, snapshot.Vm, method, "", "", func(vm *simulator.VirtualMachine) *failure { return run(vm, snapshot) })
}

// RemoveSnapshotTask removes a snapshot, with its children if removeChildren is set.
// The disks that only they have are removed too. The simulator panics if the current
// snapshot has no parent.
func (o *operations) RemoveSnapshotTask(ctx *simulator.Context, req *types.RemoveSnapshot_Task) soap.HasFault {
	body := &methods.RemoveSnapshot_TaskBody{}
	ref, fault := o.snapshotTask(ctx, req.This, methodRemoveSnapshot, func(vm *simulator.VirtualMachine, snapshot *simulator.VirtualMachineSnapshot) (refused *failure) {
		o.s.locked(func(ctx *simulator.Context) { refused = o.s.removeSnapshot(ctx, vm, snapshot.Self, req.RemoveChildren) })
		return refused
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.RemoveSnapshot_TaskResponse{Returnval: ref}
	}
	return body
}

func (s *Server) removeSnapshot(ctx *simulator.Context, vm *simulator.VirtualMachine, at ref, withChildren bool) (refused *failure) {
	path := snapshotPath(vm.Snapshot.RootSnapshotList, at)
	if path == nil {
		return fail(notFound(at)) // removed meanwhile
	}
	removed := []ref{at}
	if withChildren {
		removed = snapshotsIn(path[len(path)-1:])
	}
	files := snapshotDisks(ctx, vm)
	current := vm.Snapshot.CurrentSnapshot
	if current != nil && slices.Contains(removed, *current) {
		current = nil
		if len(path) > 1 {
			current = &path[len(path)-2].Snapshot
		}
	}
	vm.Snapshot.CurrentSnapshot = nil
	for _, one := range slices.Backward(removed) {
		snapshot := ctx.Map.Get(one).(*simulator.VirtualMachineSnapshot)
		_, refused = s.inner(ctx, func() ref {
			return snapshot.RemoveSnapshotTask(ctx, &types.RemoveSnapshot_Task{This: one}).(*methods.RemoveSnapshot_TaskBody).Res.Returnval
		})
	}
	if vm.Snapshot != nil {
		vm.Snapshot.CurrentSnapshot = current
	}
	removeFiles(ctx, withoutFiles(files, append(disksOf(vm.Config.Hardware.Device), snapshotDisks(ctx, vm)...)))
	return refused
}

// snapshotPath returns the snapshots from a root to one, or nil if the trees do not
// have it.
func snapshotPath(trees []types.VirtualMachineSnapshotTree, at ref) []types.VirtualMachineSnapshotTree {
	for _, tree := range trees {
		below := snapshotPath(tree.ChildSnapshotList, at)
		if below != nil || tree.Snapshot == at {
			return append([]types.VirtualMachineSnapshotTree{tree}, below...)
		}
	}
	return nil
}

// snapshotsIn are the snapshots in trees, each before its children.
func snapshotsIn(trees []types.VirtualMachineSnapshotTree) (list []ref) {
	for _, tree := range trees {
		list = append(append(list, tree.Snapshot), snapshotsIn(tree.ChildSnapshotList)...)
	}
	return list
}

// RevertToSnapshotTask gives a VM the configuration and the power state of a
// snapshot.
func (o *operations) RevertToSnapshotTask(ctx *simulator.Context, req *types.RevertToSnapshot_Task) soap.HasFault {
	body := &methods.RevertToSnapshot_TaskBody{}
	ref, fault := o.snapshotTask(ctx, req.This, methodRevert, func(vm *simulator.VirtualMachine, snapshot *simulator.VirtualMachineSnapshot) *failure {
		return o.s.revert(vm, snapshot, req.SuppressPowerOn)
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.RevertToSnapshot_TaskResponse{Returnval: ref}
	}
	return body
}

// RevertToCurrentSnapshotTask is RevertToSnapshotTask for the current snapshot.
func (o *operations) RevertToCurrentSnapshotTask(ctx *simulator.Context, req *types.RevertToCurrentSnapshot_Task) soap.HasFault {
	body := &methods.RevertToCurrentSnapshot_TaskBody{}
	vm, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine)
	if ok && (vm.Snapshot == nil || vm.Snapshot.CurrentSnapshot == nil) {
		body.Fault_ = soapFault(&types.NotFound{})
		return body
	}
	ref, fault := o.vmTask(ctx, req.This, methodRevertToCurrent, "", "", func(vm *simulator.VirtualMachine) *failure {
		var current *simulator.VirtualMachineSnapshot
		o.s.locked(func(ctx *simulator.Context) {
			current, _ = ctx.Map.Get(*vm.Snapshot.CurrentSnapshot).(*simulator.VirtualMachineSnapshot)
		})
		return o.s.revert(vm, current, req.SuppressPowerOn)
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.RevertToCurrentSnapshot_TaskResponse{Returnval: ref}
	}
	return body
}

// revert reverts a VM. It is powered on only if the snapshot has its memory.
func (s *Server) revert(vm *simulator.VirtualMachine, snapshot *simulator.VirtualMachineSnapshot, suppressPowerOn *bool) *failure {
	if s.snapshot(vm).PoweredOn {
		if refused := s.powerOff(vm, false); refused != nil {
			return refused
		}
	}
	state := poweredOff
	var refused *failure
	s.locked(func(ctx *simulator.Context) {
		path := snapshotPath(vm.Snapshot.RootSnapshotList, snapshot.Self)
		if path == nil {
			refused = fail(notFound(snapshot.Self))
			return
		}
		state = path[len(path)-1].State
		if refused = restore(ctx, vm, &snapshot.Config); refused == nil {
			ctx.Update(vm, []types.PropertyChange{{Name: "snapshot.currentSnapshot", Val: snapshot.Self}})
			setPower(ctx, vm, poweredOff)
		}
	})
	if refused != nil || state != poweredOn || suppressPowerOn != nil && *suppressPowerOn {
		return refused
	}
	return s.powerOn(vm)
}

// restore gives a VM a copy of the configuration of one of its snapshots. Its name
// is not a part of a snapshot.
func restore(ctx *simulator.Context, vm *simulator.VirtualMachine, from *types.VirtualMachineConfigInfo) *failure {
	var config types.VirtualMachineConfigInfo
	text, err := xml.Marshal(from)
	if err == nil {
		decoder := xml.NewDecoder(bytes.NewReader(text))
		decoder.TypeFunc = types.TypeFunc()
		err = decoder.Decode(&config)
	}
	if err != nil {
		return fail(&types.SystemErrorFault{Reason: err.Error()})
	}
	config.Name = vm.Config.Name
	config.ChangeVersion = vm.Config.ChangeVersion
	config.Modified = time.Now()
	ctx.Update(vm, []types.PropertyChange{
		{Name: "config", Val: &config},
		{Name: "summary.config.numCpu", Val: config.Hardware.NumCPU},
		{Name: "summary.config.memorySizeMB", Val: config.Hardware.MemoryMB},
		{Name: "summary.config.annotation", Val: config.Annotation},
	})
	return nil
}

// ConsolidateVMDisksTask merges the files that removed snapshots left behind.
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

// SetConsolidationNeeded sets that a VM's disks contain parts of removed
// snapshots.
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
