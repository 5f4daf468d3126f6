package vcenter

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const methodCreate = "CreateVM_Task"

// CreateVMTask creates a VM that is no clone. The driver never requests it, other
// clients do: their VMs must not share devices with the clones.
func (o *operations) CreateVMTask(ctx *simulator.Context, req *types.CreateVM_Task) soap.HasFault {
	body := &methods.CreateVM_TaskBody{}
	folder, ok := ctx.Map.Get(req.This).(*simulator.Folder)
	if !ok {
		body.Fault_ = soapFault(notFound(req.This))
		return body
	}
	for _, at := range []*ref{&req.Pool, req.Host} {
		if at != nil && ctx.Map.Get(*at) == nil {
			body.Fault_ = soapFault(notFound(*at))
			return body
		}
	}
	body.Res = &types.CreateVM_TaskResponse{Returnval: o.s.startTask(ctx, work{
		method: methodCreate, descriptionID: "Folder.createVm", on: folder, shared: true,
		run: func(types.ManagedObjectReference) (made types.AnyType, refused *failure) {
			o.s.locked(func(ctx *simulator.Context) { made, refused = o.s.create(ctx, folder, req) })
			return made, refused
		},
	})}
	return body
}

// create creates a VM. The caller holds the inventory.
func (s *Server) create(ctx *simulator.Context, folder *simulator.Folder, req *types.CreateVM_Task) (types.AnyType, *failure) {
	if refused := checkDevices(ctx, req.Config.DeviceChange); refused != nil {
		return nil, refused
	}
	if existing := ctx.Map.FindByName(req.Config.Name, folder.ChildEntity); existing != nil {
		return nil, fail(&types.DuplicateName{Name: req.Config.Name, Object: existing.Reference()})
	}
	making.Lock()
	defer making.Unlock()
	renewDefaultDevices()
	made, refused := s.inner(ctx, func() ref {
		return folder.CreateVMTask(ctx, req).(*methods.CreateVM_TaskBody).Res.Returnval
	})
	if refused != nil {
		return nil, refused
	}
	vm := ctx.Map.Get(made.(ref)).(*simulator.VirtualMachine)
	vm.Config.SwapPlacement = string(types.VirtualMachineConfigInfoSwapPlacementTypeInherit)
	setDefault(&req.Config.Uuid, newUUID(biosUUIDMark))
	setDefault(&req.Config.InstanceUuid, newUUID(instanceUUIDMark))
	ctx.Update(vm, []types.PropertyChange{
		{Name: "config.uuid", Val: req.Config.Uuid},
		{Name: "summary.config.uuid", Val: req.Config.Uuid},
		{Name: "config.instanceUuid", Val: req.Config.InstanceUuid},
		{Name: "summary.config.instanceUuid", Val: req.Config.InstanceUuid},
	})
	s.assignMACs(ctx, vm, true)
	setPower(ctx, vm, poweredOff)
	s.watch.touchAll()
	return made, nil
}
