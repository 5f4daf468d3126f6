package vsphere

import (
	"context"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
)

// upgrade requests vCenter to upgrade the hardware of a VM that is off to the
// version in the spec of m. The clone request cannot do that: vCenter accepts
// a version only for VMs that it creates from scratch.
func (d *driver) upgrade(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	if d.pendingUpgrade(id, m, state) == "" || !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Upgrading, "Upgrading the hardware to "+m.Spec.Hardware.Version) {
		return nil
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.UpgradeVM_Task(ctx, c, &types.UpgradeVM_Task{This: vm, Version: m.Spec.Hardware.Version})
		if err != nil && fault.Is(err, &types.AlreadyUpgraded{}) {
			return ref{}, nil
		}
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}
