package zvirt

import (
	"context"
	"net/http"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Shutdown asks the guest to power itself off. The engine takes the power away
// from a VM that is not up instead, so such a VM is not asked. One that goes
// down was asked already.
func (d *driver) Shutdown(ctx context.Context, m *infrav1.NovaZVirtMachine) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	view, _ := d.look(id, m)
	if state, _, err := d.state(id, m, view); err != nil || state != hypervisor.Running {
		return err
	}
	vm := *view.VM
	if vm.Status == "powering_down" {
		return nil
	}
	if vm.Status != "up" {
		return plan.Failure(infrav1.GuestUnreachableReason, "the VM is %s, and the engine would take its power away instead of asking the guest", vm.Status)
	}
	return d.session.Ask(ctx, id, "Shutting down", ovirt.Request{
		Method: http.MethodPost, Path: []string{"vms", vm.ID, "shutdown"}, Body: ovirt.Action{},
	}, func() {
		vm.Status = "powering_down"
		d.session.Mirror.Put(id.String(), vm, false)
	})
}
