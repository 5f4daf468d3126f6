package zvirt

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Delete takes the power from the VM behind m; once it is off, it detaches the
// disks that are not ours, one a call, and removes the VM with the rest.
func (d *driver) Delete(ctx context.Context, m *infrav1.NovaZVirtMachine) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	view, _ := d.look(id, m)
	state, _, err := d.state(id, m, view)
	if err != nil || state != hypervisor.Running && state != hypervisor.Stopped {
		return err
	}
	vm := *view.VM
	if ptr.Deref(vm.DeleteProtected, false) {
		return plan.Failure(infrav1.DeleteProtectedReason, "the VM is protected against deletion in the engine: take the protection away there to let the machine go")
	}
	if vm.Status != "down" {
		return d.session.Ask(ctx, id, "Powering off", ovirt.Request{
			Method: http.MethodPost, Path: []string{"vms", vm.ID, "stop"}, Body: ovirt.Action{},
		}, func() {
			vm.Status = "powering_down"
			d.session.PowerTaken(id)
			d.session.Mirror.Put(id.String(), vm, false)
		})
	}
	// A disk may have been attached since the last look: a removed VM takes
	// all that it has along.
	var disks ovirt.DiskAttachments
	err = d.session.Do(ctx, ovirt.Request{
		Method: http.MethodGet, Path: []string{"vms", vm.ID, "diskattachments"}, Query: url.Values{"follow": {"disk"}}, Into: &disks,
	})
	if err != nil {
		return err
	}
	vm.DiskAttachments = &disks
	if i := slices.IndexFunc(disks.Attachments, func(a ovirt.DiskAttachment) bool { return !plan.Ours(a, id) }); i >= 0 {
		return d.detach(ctx, id, vm, disks.Attachments[i])
	}
	err = d.session.Ask(ctx, id, "Removing the VM", ovirt.Request{Method: http.MethodDelete, Path: []string{"vms", vm.ID}}, func() {
		d.session.Mirror.Drop(vm.ID)
	})
	if err == nil {
		d.session.Expect(id, engine.Removing)
	}
	return err
}

// detach takes a disk out of a VM and keeps it.
func (d *driver) detach(ctx context.Context, id uuid.UUID, vm ovirt.VM, a ovirt.DiskAttachment) error {
	return d.session.Ask(ctx, id, fmt.Sprintf("Detaching the disk %s, which is not the machine's", a.ID), ovirt.Request{
		Method: http.MethodDelete, Path: []string{"vms", vm.ID, "diskattachments", a.ID}, Query: url.Values{"detach_only": {"true"}},
	}, func() {
		vm.DiskAttachments = &ovirt.DiskAttachments{Attachments: slices.DeleteFunc(slices.Clone(plan.Attachments(&vm)), func(o ovirt.DiskAttachment) bool { return o.ID == a.ID })}
		d.session.Mirror.Put(id.String(), vm, true)
	})
}
