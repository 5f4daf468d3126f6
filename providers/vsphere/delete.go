package vsphere

import (
	"context"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Delete asks vCenter to power the VM behind m off, or, once it is off, to
// destroy it with its disks. The node was drained before; nothing is gained
// by asking the guest.
func (d *driver) Delete(ctx context.Context, m *infrav1.NovaVSphereMachine) error {
	ctx = urgent(ctx)
	id, err := instanceUUID(d.clusterID, keyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	switch state {
	case hypervisor.Running:
		if !d.session.inv.begin(id, keyOf(m), stopping, "Powering off") {
			return nil
		}
		return d.ask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
			res, err := methods.PowerOffVM_Task(ctx, c, &types.PowerOffVM_Task{This: vm})
			if isPowerState(err) || isGone(err) {
				return ref{}, nil
			}
			if err != nil {
				return ref{}, err
			}
			return res.Returnval, nil
		})
	case hypervisor.Stopped:
		if !d.session.inv.begin(id, keyOf(m), destroying, "Destroying") {
			return nil
		}
		return d.ask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
			res, err := methods.Destroy_Task(ctx, c, &types.Destroy_Task{This: vm})
			if isGone(err) {
				return ref{}, nil
			}
			if err != nil {
				return ref{}, err
			}
			return res.Returnval, nil
		})
	default:
		return nil
	}
}
