package vcenter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
)

const (
	poweredOn  = types.VirtualMachinePowerStatePoweredOn
	poweredOff = types.VirtualMachinePowerStatePoweredOff
	suspended  = types.VirtualMachinePowerStateSuspended
)

// vmTask starts a task on the VM ref, which must be in the state want, if any.
func (o *operations) vmTask(
	ctx *simulator.Context, ref types.ManagedObjectReference, method string,
	want, request types.VirtualMachinePowerState, run func(*simulator.VirtualMachine) *failure,
) (types.ManagedObjectReference, *soap.Fault) {
	return o.vmTaskWithResult(ctx, ref, method, want, request, func(vm *simulator.VirtualMachine) (types.AnyType, *failure) {
		return nil, run(vm)
	})
}

// vmTaskWithResult is vmTask for tasks that have a result.
func (o *operations) vmTaskWithResult(
	ctx *simulator.Context, ref types.ManagedObjectReference, method string,
	want, request types.VirtualMachinePowerState, run func(*simulator.VirtualMachine) (types.AnyType, *failure),
) (types.ManagedObjectReference, *soap.Fault) {
	vm, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return types.ManagedObjectReference{}, soapFault(notFound(ref))
	}
	return o.s.startTask(ctx, work{
		method:        method,
		descriptionID: taskDescription(method),
		vm:            vm,
		check: func(*simulator.Context) *failure {
			now := vm.Runtime.PowerState
			if now == suspended && (method == methodPowerOn || method == methodPowerOff) {
				return nil // resumed, or off without its memory
			}
			if want != "" && now != want {
				return fail(&types.InvalidPowerState{RequestedState: request, ExistingState: now})
			}
			return nil
		},
		run: func(types.ManagedObjectReference) (types.AnyType, *failure) { return run(vm) },
	}), nil
}

// PowerOnVMTask powers a VM on.
func (o *operations) PowerOnVMTask(ctx *simulator.Context, req *types.PowerOnVM_Task) soap.HasFault {
	body := &methods.PowerOnVM_TaskBody{}
	if vm, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine); ok && vm.Config.Template {
		body.Fault_ = soapFault(&types.NotSupported{})
		return body
	}
	ref, fault := o.vmTask(ctx, req.This, methodPowerOn, poweredOff, poweredOn, o.s.powerOn)
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.PowerOnVM_TaskResponse{Returnval: ref}
	}
	return body
}

// PowerOffVMTask cuts a VM's power.
func (o *operations) PowerOffVMTask(ctx *simulator.Context, req *types.PowerOffVM_Task) soap.HasFault {
	body := &methods.PowerOffVM_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodPowerOff, poweredOn, poweredOff, func(vm *simulator.VirtualMachine) *failure {
		return o.s.powerOff(vm, false)
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.PowerOffVM_TaskResponse{Returnval: ref}
	}
	return body
}

// ResetVMTask cuts a VM's power and gives it back.
func (o *operations) ResetVMTask(ctx *simulator.Context, req *types.ResetVM_Task) soap.HasFault {
	body := &methods.ResetVM_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodReset, poweredOn, poweredOn, func(vm *simulator.VirtualMachine) *failure {
		return o.s.restart(vm, false)
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.ResetVM_TaskResponse{Returnval: ref}
	}
	return body
}

// ShutdownGuest requests a shutdown from the guest and returns at once.
func (o *operations) ShutdownGuest(ctx *simulator.Context, req *types.ShutdownGuest) soap.HasFault {
	body := &methods.ShutdownGuestBody{}
	vm, fault := guestRequest(ctx, req.This)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	o.s.wg.Go(func() { _ = o.s.powerOff(vm, true) })
	body.Res = &types.ShutdownGuestResponse{}
	return body
}

// RebootGuest requests a reboot from the guest and returns at once.
func (o *operations) RebootGuest(ctx *simulator.Context, req *types.RebootGuest) soap.HasFault {
	body := &methods.RebootGuestBody{}
	vm, fault := guestRequest(ctx, req.This)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	o.s.wg.Go(func() { _ = o.s.restart(vm, true) })
	body.Res = &types.RebootGuestResponse{}
	return body
}

func guestRequest(ctx *simulator.Context, ref types.ManagedObjectReference) (*simulator.VirtualMachine, *soap.Fault) {
	vm, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	switch {
	case !ok:
		return nil, soapFault(notFound(ref))
	case vm.Runtime.PowerState != poweredOn:
		return nil, soapFault(&types.InvalidPowerState{RequestedState: poweredOn, ExistingState: vm.Runtime.PowerState})
	case vm.Guest.ToolsRunningStatus != string(types.VirtualMachineToolsRunningStatusGuestToolsRunning):
		return nil, soapFault(&types.ToolsUnavailable{})
	}
	return vm, nil
}

// DestroyTask takes a VM and its disks away.
func (o *operations) DestroyTask(ctx *simulator.Context, req *types.Destroy_Task) soap.HasFault {
	body := &methods.Destroy_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodDestroy, poweredOff, poweredOff, o.s.destroy)
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.Destroy_TaskResponse{Returnval: ref}
	}
	return body
}

// ReconfigVMTask changes a VM's configuration.
func (o *operations) ReconfigVMTask(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	body := &methods.ReconfigVM_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodReconfigure, "", "", func(vm *simulator.VirtualMachine) *failure {
		var refused *failure
		var after VM
		o.s.locked(func(ctx *simulator.Context) {
			refused = checkDevices(ctx, req.Spec.DeviceChange)
			if refused == nil {
				refused = checkRemovals(ctx, vm, req.Spec.DeviceChange)
			}
			if refused == nil {
				refused = o.s.reconfigure(ctx, vm, req.Spec)
			}
			o.s.assignMACs(ctx, vm, false)
			after = describe(ctx, vm)
		})
		if guests, ok := o.s.opts.Guests.(Reconfigurer); ok && refused == nil {
			return guestFailure(guests.Reconfigure(o.s.ctx, after))
		}
		return refused
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.ReconfigVM_TaskResponse{Returnval: ref}
	}
	return body
}

// checkRemovals refuses to take disks off a VM that is suspended, and
// first-class disks off one whose snapshots have them.
func checkRemovals(ctx *simulator.Context, vm *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) *failure {
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		disk, ok := spec.Device.(*types.VirtualDisk)
		if !ok || spec.Operation != types.VirtualDeviceConfigSpecOperationRemove {
			continue
		}
		if vm.Runtime.PowerState == suspended {
			return fail(&types.InvalidPowerState{RequestedState: poweredOff, ExistingState: suspended})
		}
		for _, file := range disksOf([]types.BaseVirtualDevice{disk}) {
			if disk.VDiskId != nil && slices.Contains(snapshotDisks(ctx, vm), file) {
				return fail(&types.InvalidState{})
			}
		}
	}
	return nil
}

// Reconfigurer is a Guests whose machines see a new configuration, such as
// changed guestinfo, while they run.
type Reconfigurer interface {
	Reconfigure(ctx context.Context, vm VM) error
}

// reconfigure applies spec. The caller holds the inventory.
func (s *Server) reconfigure(ctx *simulator.Context, vm *simulator.VirtualMachine, spec types.VirtualMachineConfigSpec) *failure {
	if refused := fitDevices(vm, spec.DeviceChange); refused != nil {
		return refused
	}
	if refused := checkSizes(vm, &spec); refused != nil {
		return refused
	}
	if refused := checkCapacities(vm, spec.DeviceChange); refused != nil {
		return refused
	}
	// The simulator changes the list in place, and snapshots share it.
	vm.Config.Hardware.Device = slices.Clone(vm.Config.Hardware.Device)
	for _, change := range spec.DeviceChange {
		// vCenter sets it, and clients leave that unit out when they place disks.
		if controller, ok := change.GetVirtualDeviceConfigSpec().Device.(types.BaseVirtualSCSIController); ok {
			setDefault(&controller.GetVirtualSCSIController().ScsiCtlrUnitNumber, scsiUnit)
		}
	}
	spec.ExtraConfig = effective(vm, spec.ExtraConfig)
	before := describe(ctx, vm).ExtraConfig
	_, refused := s.inner(ctx, func() types.ManagedObjectReference {
		res := vm.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: vm.Self, Spec: spec})
		return res.(*methods.ReconfigVM_TaskBody).Res.Returnval
	})
	if vm.Runtime.PowerState != poweredOn {
		vm.Guest.Net = nil // the simulator adds cards that no guest reported
	}
	if refused == nil {
		// The simulator ignores the one, and leaves the other out of the summary.
		setDefault(&spec.SwapPlacement, vm.Config.SwapPlacement)
		ctx.Update(vm, []types.PropertyChange{
			{Name: "config.swapPlacement", Val: spec.SwapPlacement},
			{Name: "summary.config.annotation", Val: vm.Config.Annotation},
		})
		completeEvent(ctx, vm.Self, before, spec.ExtraConfig)
	}
	return refused
}

// Memory that can be added to a VM that runs, in MiB. A guest with Linux and at most
// smallMemory cannot get more than that.
const (
	smallMemory   = 3072
	memoryFactor  = 16
	memoryStepMiB = 128
)

// checkSizes refuses CPUs and memory that a VM cannot get, or lose, while it runs.
func checkSizes(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) *failure {
	if vm.Runtime.PowerState == poweredOff {
		return nil
	}
	has := &vm.Config.Hardware
	added := spec.MemoryMB - int64(has.MemoryMB)
	switch {
	case vm.Runtime.PowerState == suspended && (spec.NumCPUs != 0 || spec.MemoryMB != 0), spec.CpuHotAddEnabled != nil, spec.MemoryHotAddEnabled != nil:
		return fail(&types.InvalidPowerState{RequestedState: poweredOff, ExistingState: vm.Runtime.PowerState})
	case spec.NumCPUs != 0 && spec.NumCPUs != has.NumCPU && !ptr.Deref(vm.Config.CpuHotAddEnabled, false), spec.NumCPUs != 0 && spec.NumCPUs < has.NumCPU:
		return fail(&types.CpuHotPlugNotSupported{})
	case spec.NumCPUs%max(ptr.Deref(has.NumCoresPerSocket, 1), 1) != 0:
		return fail(&types.InvalidVmConfig{Property: "numCPUs"})
	case spec.MemoryMB == 0 || added == 0:
		return nil
	case !ptr.Deref(vm.Config.MemoryHotAddEnabled, false), added < 0:
		return fail(&types.MemoryHotPlugNotSupported{})
	case added%vm.Config.HotPlugMemoryIncrementSize != 0, spec.MemoryMB > vm.Config.HotPlugMemoryLimit:
		return fail(&types.InvalidVmConfig{Property: "memoryMB"})
	}
	return nil
}

// checkCapacities refuses sizes that a disk of a VM cannot get: smaller ones, any while
// another disk depends on it or it on another one, and on an IDE controller while the VM
// runs.
func checkCapacities(vm *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) *failure {
	devices := object.VirtualDeviceList(vm.Config.Hardware.Device)
	for i, change := range changes {
		edit := change.GetVirtualDeviceConfigSpec()
		disk, ok := edit.Device.(*types.VirtualDisk)
		if !ok || edit.Operation != types.VirtualDeviceConfigSpecOperationEdit {
			continue
		}
		own := devices.FindByKey(disk.Key).(*types.VirtualDisk)
		if disk.CapacityInKB == own.CapacityInKB {
			continue
		}
		backing, flat := own.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		_, ide := devices.FindByKey(own.ControllerKey).(*types.VirtualIDEController)
		spec := types.InvalidDeviceSpec{
			InvalidVmConfig: types.InvalidVmConfig{Property: fmt.Sprintf("virtualDeviceSpec[%d].device.capacityInKB", i)}, DeviceIndex: int32(i),
		}
		switch {
		case vm.Runtime.PowerState == suspended:
			return fail(&types.InvalidPowerState{RequestedState: poweredOff, ExistingState: suspended})
		case vm.Snapshot != nil, flat && backing.Parent != nil:
			return fail(&types.InvalidDeviceOperation{InvalidDeviceSpec: spec, BadOp: edit.Operation})
		case disk.CapacityInKB < own.CapacityInKB, ide && vm.Runtime.PowerState == poweredOn:
			return fail(&spec)
		}
	}
	return nil
}

// setMemoryLimit sets how far the memory of a VM can grow while it runs.
func setMemoryLimit(ctx *simulator.Context, vm *simulator.VirtualMachine, on bool) {
	limit, step := int64(0), int64(0)
	if on {
		step, limit = memoryStepMiB, memoryFactor*int64(vm.Config.Hardware.MemoryMB)
		if vm.Config.Hardware.MemoryMB <= smallMemory {
			limit = smallMemory
		}
	}
	ctx.Update(vm, []types.PropertyChange{{Name: "config.hotPlugMemoryLimit", Val: limit}, {Name: "config.hotPlugMemoryIncrementSize", Val: step}})
}

// effective leaves out the removal of keys that are not there, which the
// simulator would add with an empty value. A later value wins.
func effective(vm *simulator.VirtualMachine, change []types.BaseOptionValue) []types.BaseOptionValue {
	present := map[string]bool{}
	for _, option := range vm.Config.ExtraConfig {
		present[option.GetOptionValue().Key] = true
	}
	var kept []types.BaseOptionValue
	for _, option := range change {
		value := option.GetOptionValue()
		text, isText := value.Value.(string)
		removes := value.Value == nil || isText && text == ""
		if removes && !present[value.Key] {
			continue
		}
		if removes {
			option = &types.OptionValue{Key: value.Key, Value: ""}
		}
		present[value.Key] = !removes
		kept = append(kept, option)
	}
	return kept
}

func (s *Server) powerOn(vm *simulator.VirtualMachine) *failure {
	if s.opts.Guests != nil {
		if err := s.opts.Guests.PowerOn(s.ctx, s.snapshot(vm)); err != nil {
			return guestFailure(err)
		}
	}
	s.locked(func(ctx *simulator.Context) {
		setMemoryLimit(ctx, vm, true)
		setPower(ctx, vm, poweredOn)
	})
	return nil
}

func (s *Server) powerOff(vm *simulator.VirtualMachine, soft bool) *failure {
	if s.opts.Guests != nil {
		if err := s.opts.Guests.PowerOff(s.ctx, s.snapshot(vm), soft); err != nil {
			return guestFailure(err)
		}
	}
	s.locked(func(ctx *simulator.Context) {
		setMemoryLimit(ctx, vm, false)
		setPower(ctx, vm, poweredOff)
	})
	return nil
}

// restart restarts the machine, and the state of the VM remains powered on.
func (s *Server) restart(vm *simulator.VirtualMachine, soft bool) *failure {
	if s.opts.Guests == nil {
		return nil
	}
	info := s.snapshot(vm)
	if err := s.opts.Guests.PowerOff(s.ctx, info, soft); err != nil {
		return guestFailure(err)
	}
	s.locked(func(ctx *simulator.Context) { clearGuest(ctx, vm) })
	return guestFailure(s.opts.Guests.PowerOn(s.ctx, info))
}

func (s *Server) destroy(vm *simulator.VirtualMachine) *failure {
	if s.opts.Guests != nil {
		if err := s.opts.Guests.Destroy(s.ctx, s.snapshot(vm)); err != nil {
			return guestFailure(err)
		}
	}
	var refused *failure
	s.locked(func(ctx *simulator.Context) { refused = s.remove(ctx, vm) })
	return refused
}

// remove takes a VM out of the inventory, which the caller holds.
func (s *Server) remove(ctx *simulator.Context, vm *simulator.VirtualMachine) *failure {
	// All attached disks are deleted with the VM, on any datastore.
	files := append(disksOf(vm.Config.Hardware.Device), snapshotDisks(ctx, vm)...)
	var refused *failure
	err := keepOthers(ctx, vm, func() { refused = s.destroyAll(ctx, vm) })
	if refused == nil && err != nil {
		refused = fail(&types.SystemErrorFault{Reason: err.Error()})
	}
	if refused == nil {
		removeFiles(ctx, files)
		s.dropFromRules(ctx, vm.Self)
	}
	return refused
}

func (s *Server) destroyAll(ctx *simulator.Context, vm *simulator.VirtualMachine) *failure {
	_, refused := s.inner(ctx, func() types.ManagedObjectReference {
		res := vm.DestroyTask(ctx, &types.Destroy_Task{This: vm.Self})
		return res.(*methods.Destroy_TaskBody).Res.Returnval
	})
	return refused
}

func (s *Server) snapshot(vm *simulator.VirtualMachine) VM {
	var info VM
	s.locked(func(ctx *simulator.Context) { info = describe(ctx, vm) })
	return info
}

func guestFailure(err error) *failure {
	if err == nil {
		return nil
	}
	return fail(&types.SystemErrorFault{Reason: err.Error()})
}

// setPower records a power state. A guest that is off reports nothing.
func setPower(ctx *simulator.Context, vm *simulator.VirtualMachine, state types.VirtualMachinePowerState) {
	for _, card := range ethernetCards(vm) {
		if card.Connectable != nil {
			card.Connectable.Connected = state == poweredOn && card.Connectable.StartConnected
		}
	}
	if state != poweredOn {
		clearGuest(ctx, vm)
	}
	var boot types.AnyType
	if state == poweredOn {
		boot = time.Now()
	}
	ctx.Update(vm, []types.PropertyChange{
		{Name: "runtime.powerState", Val: state},
		{Name: "summary.runtime.powerState", Val: state},
		{Name: "runtime.bootTime", Val: boot},
		{Name: "summary.runtime.bootTime", Val: boot},
	})
}

func clearGuest(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	ctx.Update(vm, append(toolsState(false),
		types.PropertyChange{Name: "guest.net", Val: []types.GuestNicInfo{}},
		types.PropertyChange{Name: "guest.ipAddress", Val: ""},
		types.PropertyChange{Name: "summary.guest.ipAddress", Val: ""},
	))
}
