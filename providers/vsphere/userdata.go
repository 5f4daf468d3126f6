package vsphere

import (
	"context"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// removeUserData removes the bootstrap data from a VM's settings.
func (d *driver) removeUserData(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	vm, _ := d.session.inv.BeginSync(id, hypervisor.KeyOf(m), inventory.SyncUserData, "Removing the user data from the VM's settings")
	if vm == (ref{}) {
		return nil
	}
	config := types.VirtualMachineConfigSpec{}
	for _, key := range spec.BootstrapDataKeys {
		// An empty value removes the key.
		config.ExtraConfig = append(config.ExtraConfig, &types.OptionValue{Key: key, Value: ""})
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.ReconfigVM_Task(ctx, c, &types.ReconfigVM_Task{This: vm, Spec: config})
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}
