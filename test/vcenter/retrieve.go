package vcenter

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// RetrieveProperties reads objects that the account can see.
func (o *operations) RetrieveProperties(ctx *simulator.Context, req *types.RetrieveProperties) soap.HasFault {
	body := &methods.RetrievePropertiesBody{}
	objects, fault := o.read(ctx, req.SpecSet)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	body.Res = &types.RetrievePropertiesResponse{Returnval: objects}
	return body
}

// RetrievePropertiesEx reads objects that the account can see.
func (o *operations) RetrievePropertiesEx(ctx *simulator.Context, req *types.RetrievePropertiesEx) soap.HasFault {
	body := &methods.RetrievePropertiesExBody{Res: &types.RetrievePropertiesExResponse{}}
	objects, fault := o.read(ctx, req.SpecSet)
	if fault != nil {
		return &methods.RetrievePropertiesExBody{Fault_: fault}
	}
	if len(objects) > 0 {
		body.Res.Returnval = &types.RetrieveResult{Objects: objects}
	}
	return body
}

func (o *operations) read(ctx *simulator.Context, specs []types.PropertyFilterSpec) ([]types.ObjectContent, *soap.Fault) {
	for _, spec := range specs {
		for _, set := range spec.ObjectSet {
			if o.s.isHidden(ctx, set.Obj) {
				at := set.Obj
				return nil, soapFault(&types.NoPermission{Object: &at, PrivilegeId: "System.View"})
			}
		}
	}
	reader := &simulator.PropertyCollector{}
	copied := *ctx // the simulator's locks belong to contexts
	res := reader.RetrievePropertiesEx(&copied, &types.RetrievePropertiesEx{SpecSet: specs})
	if fault := res.Fault(); fault != nil {
		return nil, fault
	}
	found := res.(*methods.RetrievePropertiesExBody).Res.Returnval
	if found == nil {
		return nil, nil
	}
	return o.s.seen(ctx, found.Objects), nil
}
