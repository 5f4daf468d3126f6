package vcenter

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// RenameTask renames a VM or template. The simulator's own implementation would
// wait for the inventory that its caller holds, and so would never end.
func (o *operations) RenameTask(ctx *simulator.Context, req *types.Rename_Task) soap.HasFault {
	body := &methods.Rename_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodRename, "", "", func(vm *simulator.VirtualMachine) (refused *failure) {
		o.s.locked(func(ctx *simulator.Context) {
			if refused = nameTaken(ctx, vm, req.NewName); refused == nil {
				refused = o.s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{Name: req.NewName})
			}
		})
		return refused
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.Rename_TaskResponse{Returnval: ref}
	}
	return body
}

// nameTaken is the fault of a name that another entity of vm's folder has.
func nameTaken(ctx *simulator.Context, vm *simulator.VirtualMachine, name string) *failure {
	folder, ok := ctx.Map.Get(*vm.Parent).(*simulator.Folder)
	if !ok {
		return fail(notFound(*vm.Parent))
	}
	existing := ctx.Map.FindByName(name, folder.ChildEntity)
	if existing == nil || existing.Reference() == mo.Reference(vm).Reference() {
		return nil
	}
	return fail(&types.DuplicateName{Name: name, Object: existing.Reference()})
}
