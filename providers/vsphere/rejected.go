package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// vCenter keeps instance UUIDs unique: if another VM has the UUID that a clone
// requests, the new VM gets a random one. Such a VM runs with the user data of
// the machine and has its name. The result of the clone task proves that the
// VM was created for the machine, so the driver deletes it. The proof is kept
// in memory only. After a restart of the manager the VM is like any other VM
// with that name.

// deleteRejected takes one step towards the deletion of a VM that was created
// with another instance UUID. It reads the power state each time: the stream
// does not report it.
func (d *driver) deleteRejected(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, vm ref) error {
	if !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Destroying, inventory.RejectedMessage(vm)) {
		return nil
	}
	return d.startTask(vcenter.Urgent(ctx), id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		task, err := d.rejectedDeletion(ctx, c, id, vm)
		if vcenter.IsNotFound(err) {
			return ref{}, nil
		}
		return task, err
	})
}

func (d *driver) rejectedDeletion(ctx context.Context, c *vim25.Client, id uuid.UUID, vm ref) (ref, error) {
	var it mo.VirtualMachine
	if err := object.NewCommon(c, vm).Properties(ctx, vm, []string{"runtime.powerState"}, &it); err != nil {
		return ref{}, err
	}
	if it.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff {
		return d.removal(ctx, c, id, vm)
	}
	d.session.inv.Rename(id, inventory.Stopping, "Powering off the VM "+vm.Value+", to which vCenter gave another instance UUID")
	res, err := methods.PowerOffVM_Task(ctx, c, &types.PowerOffVM_Task{This: vm})
	return taskOf(res, err, func() ref { return res.Returnval })
}
