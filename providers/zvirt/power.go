package zvirt

import (
	"context"
	"net/http"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Start sends a request to power the VM of m on.
func (d *driver) Start(ctx context.Context, m *zvirtv1.NovaZVirtMachine) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	view, mark := d.lookup(id, m)
	if state, _, err := d.state(id, m, view); err != nil || state != hypervisor.Stopped {
		return err
	}
	vm := *view.VM
	err = d.session.Act(ctx, id, "Powering on", ovirt.Request{
		Method: http.MethodPost, Path: []string{"vms", vm.ID, "start"},
		// From the type of the operating system, the engine detects guests that
		// support cloud-init only.
		Body: ovirt.Action{UseIgnition: mark.UserDataFormat == plan.Ignition},
	}, func() {
		vm.Status = "wait_for_launch"
		d.session.Cache.Put(id.String(), vm, true)
	})
	if err == nil {
		d.session.SetPending(id, engine.Starting)
	}
	return err
}

// Shutdown requests a shutdown from the guest. If the VM is not up, the engine
// would power it off instead, so Shutdown sends no request. It also sends none
// if the VM is already shutting down.
func (d *driver) Shutdown(ctx context.Context, m *zvirtv1.NovaZVirtMachine) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	view, _ := d.lookup(id, m)
	if state, _, err := d.state(id, m, view); err != nil || state != hypervisor.Running {
		return err
	}
	vm := *view.VM
	if vm.Status == "powering_down" {
		return nil
	}
	if vm.Status != "up" {
		return hypervisor.Failure(infrav1.GuestUnreachableReason, "the VM is %s, and the engine would power it off instead of shutting the guest down", vm.Status)
	}
	return d.session.Act(ctx, id, "Shutting down", ovirt.Request{
		Method: http.MethodPost, Path: []string{"vms", vm.ID, "shutdown"}, Body: ovirt.Action{},
	}, func() {
		vm.Status = "powering_down"
		d.session.Cache.Put(id.String(), vm, false)
	})
}
