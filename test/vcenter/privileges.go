package vcenter

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// SetPrivileges gives the account a role with these privileges on all objects,
// besides those that any role has. If there are none, it is an administrator.
// Requests are refused as the reference of the API documents it.
func (s *Server) SetPrivileges(privileges ...string) {
	if len(privileges) == 0 {
		s.role.Store(nil)
		return
	}
	role := map[string]bool{}
	for _, p := range privileges {
		role[p] = true
	}
	s.role.Store(&role)
}

// HasPrivilegeOnEntities returns the privileges of the account. They are the
// same on all objects.
func (o *operations) HasPrivilegeOnEntities(_ *simulator.Context, req *types.HasPrivilegeOnEntities) soap.HasFault {
	res := &types.HasPrivilegeOnEntitiesResponse{}
	for _, entity := range req.Entity {
		has := types.EntityPrivilege{Entity: entity}
		for _, p := range req.PrivId {
			has.PrivAvailability = append(has.PrivAvailability, types.PrivilegeAvailability{
				PrivId: p, IsGranted: o.s.lacking([]string{p}) == "",
			})
		}
		res.Returnval = append(res.Returnval, has)
	}
	return &methods.HasPrivilegeOnEntitiesBody{Res: res}
}

// lacking returns the first of privileges that the account does not have, or "".
func (s *Server) lacking(privileges []string) string {
	role := s.role.Load()
	if role == nil {
		return ""
	}
	for _, p := range privileges {
		if !(*role)[p] {
			return p
		}
	}
	return ""
}

// methodPrivileges are the privileges of calls whose arguments do not matter.
var methodPrivileges = map[string][]string{
	methodPowerOn:            {"VirtualMachine.Interact.PowerOn"},
	methodPowerOff:           {"VirtualMachine.Interact.PowerOff"},
	methodShutdownGuest:      {"VirtualMachine.Interact.PowerOff"},
	methodRebootGuest:        {"VirtualMachine.Interact.Reset"},
	methodReset:              {"VirtualMachine.Interact.Reset"},
	methodSuspend:            {"VirtualMachine.Interact.Suspend"},
	methodRename:             {"VirtualMachine.Config.Rename"},
	methodUpgrade:            {"VirtualMachine.Config.UpgradeVirtualHardware"},
	methodSnapshot:           {"VirtualMachine.State.CreateSnapshot"},
	methodRemoveSnapshot:     {"VirtualMachine.State.RemoveSnapshot"},
	methodRemoveSnapshots:    {"VirtualMachine.State.RemoveSnapshot"},
	methodRevert:             {"VirtualMachine.State.RevertToSnapshot"},
	methodRevertToCurrent:    {"VirtualMachine.State.RevertToSnapshot"},
	"AddAuthorizationRole":   {"Authorization.ModifyRoles"},
	"SetEntityPermissions":   {"Authorization.ModifyPermissions"},
	methodConsolidate:        {"VirtualMachine.State.RemoveSnapshot"},
	methodReconfigureCluster: {"Host.Inventory.EditCluster"},
	"MarkAsTemplate":         {"VirtualMachine.Provisioning.MarkAsTemplate"},
	"CreateFolder":           {"Folder.Create"},
	"AddCustomFieldDef":      {"Global.ManageCustomFields"},
	"SetField":               {"Global.SetCustomField"},
	"PbmQueryProfile":        {"StorageProfile.View"},
	"PbmRetrieveContent":     {"StorageProfile.View"},
	"PbmCheckRequirements":   {"StorageProfile.View"},
}

// refuse returns a fault if the account does not have a privilege that a call
// needs.
func (s *Server) refuse(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	if lacking := s.lacking(needs(ctx, method)); lacking != "" {
		at := method.This
		return nil, &types.NoPermission{Object: &at, PrivilegeId: lacking}
	}
	return nil, nil
}

// needs are the privileges that a call needs.
func needs(ctx *simulator.Context, method *simulator.Method) []string {
	switch req := method.Body.(type) {
	case *types.CloneVM_Task:
		return cloneNeeds(ctx, req)
	case *types.ReconfigVM_Task:
		return configNeeds(&req.Spec)
	case *types.CreateVM_Task:
		config := req.Config
		config.Name = "" // no change of a name
		return append(configNeeds(&config), "VirtualMachine.Inventory.Create", "Resource.AssignVMToPool", "Datastore.AllocateSpace")
	case *types.RelocateVM_Task:
		return relocateNeeds(ctx, req)
	case *types.Destroy_Task:
		if req.This.Type == "VirtualMachine" {
			return []string{"VirtualMachine.Inventory.Delete"}
		}
	}
	return methodPrivileges[method.Name]
}

func cloneNeeds(ctx *simulator.Context, req *types.CloneVM_Task) []string {
	list := []string{
		"VirtualMachine.Provisioning.Clone", "VirtualMachine.Inventory.CreateFromExisting",
		"Resource.AssignVMToPool", "Datastore.AllocateSpace",
	}
	if source, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine); ok && source.Config.Template {
		list[0] = "VirtualMachine.Provisioning.DeployTemplate"
	}
	if req.Spec.PowerOn {
		list = append(list, "VirtualMachine.Interact.PowerOn")
	}
	list = append(list, deviceNeeds(req.Spec.Location.DeviceChange)...)
	if req.Spec.Config != nil {
		list = append(list, configNeeds(req.Spec.Config)...)
	}
	return list
}

func relocateNeeds(ctx *simulator.Context, req *types.RelocateVM_Task) []string {
	list := append(deviceNeeds(req.Spec.DeviceChange), "Resource.ColdMigrate")
	if vm, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine); ok && vm.Runtime.PowerState == poweredOn {
		list[len(list)-1] = "Resource.HotMigrate"
	}
	if req.Spec.Pool != nil {
		list = append(list, "Resource.AssignVMToPool")
	}
	if req.Spec.Datastore != nil || len(req.Spec.Disk) > 0 {
		list = append(list, "Datastore.AllocateSpace")
	}
	return list
}

// configNeeds are the privileges that a change of a VM's configuration needs.
func configNeeds(spec *types.VirtualMachineConfigSpec) []string {
	list := deviceNeeds(spec.DeviceChange)
	for privilege, needed := range map[string]bool{
		"VirtualMachine.Config.CPUCount":   spec.NumCPUs != 0 || spec.NumCoresPerSocket != nil || spec.CpuHotAddEnabled != nil,
		"VirtualMachine.Config.Memory":     spec.MemoryMB != 0 || spec.MemoryHotAddEnabled != nil,
		"VirtualMachine.Config.Resource":   spec.CpuAllocation != nil || spec.MemoryAllocation != nil || spec.MemoryReservationLockedToMax != nil,
		"VirtualMachine.Config.Annotation": spec.Annotation != "",
		"VirtualMachine.Config.Settings": spec.InstanceUuid != "" || spec.Uuid != "" || spec.Firmware != "" || spec.BootOptions != nil ||
			spec.NestedHVEnabled != nil || spec.VAppConfigRemoved != nil || spec.Tools != nil || spec.Flags != nil,
		"VirtualMachine.Config.AdvancedConfig": len(spec.ExtraConfig) > 0,
		"VirtualMachine.Config.Rename":         spec.Name != "",
		"VirtualMachine.Config.SwapPlacement":  spec.SwapPlacement != "",
	} {
		if needed {
			list = append(list, privilege)
		}
	}
	return list
}

// deviceNeeds are the privileges that changes of devices need.
func deviceNeeds(changes []types.BaseVirtualDeviceConfigSpec) (list []string) {
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		_, isDisk := spec.Device.(*types.VirtualDisk)
		_, isCard := spec.Device.(types.BaseVirtualEthernetCard)
		switch {
		case isDisk && spec.Operation == types.VirtualDeviceConfigSpecOperationRemove:
			list = append(list, "VirtualMachine.Config.RemoveDisk")
		case isDisk && spec.Operation == types.VirtualDeviceConfigSpecOperationEdit:
			list = append(list, "VirtualMachine.Config.EditDevice", "VirtualMachine.Config.DiskExtend")
		case isDisk && spec.FileOperation != "":
			list = append(list, "VirtualMachine.Config.AddNewDisk", "Datastore.AllocateSpace")
		case isDisk:
			list = append(list, "VirtualMachine.Config.AddExistingDisk")
		case spec.Operation == types.VirtualDeviceConfigSpecOperationEdit:
			list = append(list, "VirtualMachine.Config.EditDevice")
		default:
			list = append(list, "VirtualMachine.Config.AddRemoveDevice")
		}
		if isCard && spec.Operation != types.VirtualDeviceConfigSpecOperationRemove {
			list = append(list, "Network.Assign")
		}
	}
	return list
}

// restPrivileges are the privileges of calls of the REST API, by the end of their
// names.
var restPrivileges = map[string][]string{
	"attach-tag-to-multiple-objects": {"InventoryService.Tagging.AttachTag", "InventoryService.Tagging.ObjectAttachable"},
	"attach-multiple-tags-to-object": {"InventoryService.Tagging.AttachTag", "InventoryService.Tagging.ObjectAttachable"},
	"POST /api/cis/tagging/tag":      {"InventoryService.Tagging.CreateTag"},
	"POST /api/cis/tagging/category": {"InventoryService.Tagging.CreateCategory"},
	"?deploy":                        {"VApp.Import", "ContentLibrary.ReadStorage"},
}

// refuseREST answers a call of the REST API that the account has no privilege
// for. It reports whether there was one.
func (s *Server) refuseREST(w http.ResponseWriter, method string) bool {
	method = strings.ReplaceAll(method, "/rest/com/vmware/cis/", "/api/cis/")
	for name, list := range restPrivileges {
		lacking := s.lacking(list)
		if lacking == "" || !strings.HasSuffix(method, name) {
			continue
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"type":"com.vmware.vapi.std.errors.unauthorized","value":{"messages":[`+
			`{"default_message":"The user does not have the privilege %s."}]}}`, lacking)
		return true
	}
	return false
}
