package vcenter

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// MigrateVM moves a VM to the host called host, as vMotion does.
func (s *Server) MigrateVM(id, host string) error {
	err := fmt.Errorf("no host %q", host)
	found := s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		for _, entity := range ctx.Map.All("HostSystem") {
			to, ok := entity.(*simulator.HostSystem)
			if !ok || to.Name != host {
				continue
			}
			moveTo(ctx, vm, to)
			err = nil
		}
		s.watch.touchAll()
	})
	return errors.Join(found, err)
}

// moveTo moves a VM to a host.
func moveTo(ctx *simulator.Context, vm *simulator.VirtualMachine, to *simulator.HostSystem) {
	from := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem)
	ctx.Map.RemoveReference(ctx, from, &from.Vm, vm.Self)
	ctx.Map.AddReference(ctx, to, &to.Vm, vm.Self)
	ctx.Update(vm, []types.PropertyChange{
		{Name: "runtime.host", Val: &to.Self},
		{Name: "summary.runtime.host", Val: &to.Self},
	})
}

// SetConnectionState sets the connection state of a VM: connected,
// disconnected, inaccessible, orphaned or invalid.
func (s *Server) SetConnectionState(id, state string) error {
	return s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		setConnection(ctx, vm, state)
	})
}

func setConnection(ctx *simulator.Context, vm *simulator.VirtualMachine, state string) {
	ctx.Update(vm, []types.PropertyChange{
		{Name: "runtime.connectionState", Val: types.VirtualMachineConnectionState(state)},
		{Name: "summary.runtime.connectionState", Val: types.VirtualMachineConnectionState(state)},
	})
}

// SetHostConnected connects vCenter to a host, or cuts it off: it then knows
// nothing new of the VMs there.
func (s *Server) SetHostConnected(host string, connected bool) error {
	err := fmt.Errorf("no host %q", host)
	state, vmState := types.HostSystemConnectionStateConnected, string(types.VirtualMachineConnectionStateConnected)
	if !connected {
		state, vmState = types.HostSystemConnectionStateNotResponding, string(types.VirtualMachineConnectionStateDisconnected)
	}
	s.locked(func(ctx *simulator.Context) {
		for _, entity := range ctx.Map.All("HostSystem") {
			h, ok := entity.(*simulator.HostSystem)
			if !ok || h.Name != host {
				continue
			}
			ctx.Update(h, []types.PropertyChange{{Name: "runtime.connectionState", Val: state}})
			s.countHosts(ctx, h)
			for _, vm := range h.Vm {
				if it, ok := ctx.Map.Get(vm).(*simulator.VirtualMachine); ok {
					setConnection(ctx, it, vmState)
				}
			}
			err = nil
		}
	})
	return err
}

// SetQuestion has vCenter ask a question about a VM, or none if it is empty.
func (s *Server) SetQuestion(id, text string) error {
	return s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		var question types.AnyType
		if text != "" {
			question = &types.VirtualMachineQuestionInfo{Id: "1", Text: text}
		}
		ctx.Update(vm, []types.PropertyChange{{Name: "runtime.question", Val: question}})
	})
}

// SetToolsRunning sets whether VMware Tools run in a VM's guest.
func (s *Server) SetToolsRunning(id string, running bool) error {
	return s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		ctx.Update(vm, toolsState(running))
	})
}

// ReregisterVM takes a VM out of the inventory and registers it again: it is
// the same VM under another reference, which is returned.
func (s *Server) ReregisterVM(id string) (string, error) {
	name := ""
	err := s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		old := vm.Self
		s.dropFromRules(ctx, old)
		ctx.Map.Remove(ctx, old)
		vm.Self.Value = fmt.Sprintf("vm-%d", 900000+s.tasks.Add(1))
		vm.Summary.Vm = &vm.Self
		// Views contain only objects that are in their folder.
		for _, list := range listsOf(ctx, vm) {
			*list = append(without(*list, map[ref]bool{old: true}), vm.Self)
		}
		ctx.Map.Put(vm)
		name = vm.Self.Value
		s.watch.touchAll()
	})
	return name, err
}

// listsOf are the lists that name a VM.
func listsOf(ctx *simulator.Context, vm *simulator.VirtualMachine) []*[]ref {
	var lists []*[]ref
	if folder, ok := ctx.Map.Get(*vm.Parent).(*simulator.Folder); ok {
		lists = append(lists, &folder.ChildEntity)
	}
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		lists = append(lists, &host.Vm)
	}
	if pool, ok := ctx.Map.Get(*vm.ResourcePool).(*simulator.ResourcePool); ok {
		lists = append(lists, &pool.Vm)
	}
	for _, at := range vm.Datastore {
		if ds, ok := ctx.Map.Get(at).(*simulator.Datastore); ok {
			lists = append(lists, &ds.Vm)
		}
	}
	return lists
}

// CopyVM creates a copy of a VM with another name and the same UUIDs, as when a
// user copies its files and registers them. It returns the reference of the
// copy.
func (s *Server) CopyVM(id, name string) (string, error) {
	made := ""
	var refused *failure
	err := s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		var twin *simulator.VirtualMachine
		twin, refused = s.copy(ctx, vm, *vm.Parent, name, types.VirtualMachineRelocateSpec{Pool: vm.ResourcePool, Host: vm.Runtime.Host})
		if refused != nil {
			return
		}
		setPower(ctx, twin, poweredOff)
		twin.Config.Uuid, twin.Config.InstanceUuid = vm.Config.Uuid, vm.Config.InstanceUuid
		made = twin.Self.Value
		s.watch.touchAll()
	})
	if refused != nil {
		err = errors.New(refused.message)
	}
	return made, err
}

// SetHidden hides a VM from the account, or a folder with the given ID and all
// its objects, or ends that. Hidden objects are in no view and no list, and
// requests for them are rejected.
func (s *Server) SetHidden(id string, hidden bool) error {
	err := fmt.Errorf("no VM or folder %q", id)
	s.locked(func(ctx *simulator.Context) {
		var at *ref
		if vm := findVM(ctx, id); vm != nil {
			at = &vm.Self
		}
		for _, entity := range ctx.Map.All("Folder") {
			if folder, ok := entity.(*simulator.Folder); ok && folder.Name == id {
				at = &folder.Self
			}
		}
		if at == nil {
			return
		}
		objects := maps.Clone(*s.hidden.Load())
		if hidden {
			objects[*at] = true
		} else {
			delete(objects, *at)
		}
		s.hidden.Store(&objects)
		s.watch.touchAll()
		err = nil
	})
	return err
}

// isHidden reports whether an object, or one that contains it, is hidden.
func (s *Server) isHidden(ctx *simulator.Context, at ref) bool {
	hidden := *s.hidden.Load()
	if len(hidden) == 0 {
		return false
	}
	for {
		if hidden[at] {
			return true
		}
		entity, ok := ctx.Map.Get(at).(mo.Entity)
		if !ok || entity.Entity().Parent == nil {
			return false
		}
		at = *entity.Entity().Parent
	}
}

// seen removes the objects that the account cannot see.
func (s *Server) seen(ctx *simulator.Context, objects []types.ObjectContent) []types.ObjectContent {
	if len(*s.hidden.Load()) == 0 {
		return objects
	}
	return slices.DeleteFunc(objects, func(o types.ObjectContent) bool { return s.isHidden(ctx, o.Obj) })
}
