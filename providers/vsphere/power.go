package vsphere

import (
	"context"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
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

// Shutdown requests a shutdown of the guest. There is no task: the stream
// reports when the VM is off.
func (d *driver) Shutdown(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	ctx = vcenter.Urgent(ctx)
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	if state != hypervisor.Running || d.session.inv.ShutdownRequested(id) {
		return nil
	}
	if !d.session.inv.Info(id).ToolsRunning {
		return hypervisor.Failure(infrav1.GuestUnreachableReason, "VMware Tools do not run in the guest, so it cannot be shut down gracefully")
	}
	err = d.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		_, err := methods.ShutdownGuest(ctx, c, &types.ShutdownGuest{This: vm})
		return err
	})
	switch {
	case err == nil:
		d.session.inv.RecordShutdown(id)
		return nil
	case vcenter.IsInvalidPowerState(err) || vcenter.IsNotFound(err):
		return nil
	case fault.Is(err, &types.ToolsUnavailable{}) || fault.Is(err, &types.NotSupported{}):
		e := vcenter.AsError(vcenter.Classify(d.session.Server(), err))
		return hypervisor.Failure(infrav1.GuestUnreachableReason, "the guest cannot be shut down gracefully: %w", e.Err)
	default:
		return vcenter.Classify(d.session.Server(), err)
	}
}
