package vcenter

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// SetEntityPermissions adds permissions to an object, or changes those of the same
// users and groups. The simulator replaces all permissions of the object, accepts
// roles that do not exist, and does not return the object with its permissions.
func (o *operations) SetEntityPermissions(ctx *simulator.Context, req *types.SetEntityPermissions) soap.HasFault {
	manager := ctx.Map.Get(req.This).(*simulator.AuthorizationManager)
	current := manager.RetrieveEntityPermissions(ctx, &types.RetrieveEntityPermissions{Entity: req.Entity}).(*methods.RetrieveEntityPermissionsBody)
	merged := slices.Clone(current.Res.Returnval)
	for _, permission := range req.Permission {
		if !slices.ContainsFunc(manager.RoleList, func(r types.AuthorizationRole) bool { return r.RoleId == permission.RoleId }) {
			return &methods.SetEntityPermissionsBody{Fault_: soapFault(&types.NotFound{})}
		}
		permission.Entity = &req.Entity
		merged = slices.DeleteFunc(merged, func(p types.Permission) bool {
			return p.Principal == permission.Principal && p.Group == permission.Group
		})
		merged = append(merged, permission)
	}
	return manager.SetEntityPermissions(&types.SetEntityPermissions{This: req.This, Entity: req.Entity, Permission: merged})
}
