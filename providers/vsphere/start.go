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
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// Start requests vCenter to power on the VM of m.
func (d *driver) Start(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	ctx = vcenter.Urgent(ctx)
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	if state != hypervisor.Stopped || !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Starting, "Powering on") {
		return nil
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.PowerOnVM_Task(ctx, c, &types.PowerOnVM_Task{This: vm})
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}
