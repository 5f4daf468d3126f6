package vsphere

import (
	"context"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// userDataMarkerKey is the setting that exists until removeUserData has removed
// the bootstrap data.
const userDataMarkerKey = "nova.bootstrapData"

// bootstrapDataKeys are the settings with bootstrap data. The metadata stays:
// it has no secrets, and without its instance ID a guest that boots again
// would run cloud-init as on a new machine.
var bootstrapDataKeys = []string{
	"guestinfo.userdata", "guestinfo.userdata.encoding",
	"guestinfo.ignition.config.data", "guestinfo.ignition.config.data.encoding",
	userDataMarkerKey,
}

// removeUserData removes the bootstrap data from a VM's settings.
func (d *driver) removeUserData(ctx context.Context, m *infrav1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	vm := d.session.inv.beginSync(id, hypervisor.KeyOf(m), syncUserData, "Removing the user data from the VM's settings")
	if vm == (ref{}) {
		return nil
	}
	spec := types.VirtualMachineConfigSpec{}
	for _, key := range bootstrapDataKeys {
		// An empty value removes the key.
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: ""})
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.ReconfigVM_Task(ctx, c, &types.ReconfigVM_Task{This: vm, Spec: spec})
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}
