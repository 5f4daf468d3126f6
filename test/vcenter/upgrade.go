package vcenter

import (
	"strconv"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const methodUpgrade = "UpgradeVM_Task"

// UpgradeVMTask upgrades the hardware of a VM that is off.
func (o *operations) UpgradeVMTask(ctx *simulator.Context, req *types.UpgradeVM_Task) soap.HasFault {
	body := &methods.UpgradeVM_TaskBody{}
	ref, fault := o.vmTask(ctx, req.This, methodUpgrade, poweredOff, "", func(vm *simulator.VirtualMachine) (refused *failure) {
		o.s.locked(func(ctx *simulator.Context) {
			switch {
			case hardwareNumber(req.Version) == 0:
				refused = fail(&types.NotSupported{})
			case hardwareNumber(req.Version) <= hardwareNumber(vm.Config.Version):
				refused = fail(&types.AlreadyUpgraded{})
			default:
				ctx.Update(vm, []types.PropertyChange{{Name: "config.version", Val: req.Version}})
			}
		})
		return refused
	})
	body.Fault_ = fault
	if fault == nil {
		body.Res = &types.UpgradeVM_TaskResponse{Returnval: ref}
	}
	return body
}

func hardwareNumber(version string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(version, "vmx-"))
	return n
}
