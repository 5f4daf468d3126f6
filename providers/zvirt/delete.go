package zvirt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Delete takes the power from the VM behind m; once it is off, it detaches the
// disks that are not ours, one a call, and removes the VM with the rest. A disk
// of another that is attached after the last look at a thin VM is lost: engines
// remove no VM that is based on a template without its disks.
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
	request := ovirt.Request{Method: http.MethodDelete, Path: []string{"vms", vm.ID}}
	if plan.IsClone(&vm) {
		// An engine removes such a VM without its disks, so that a disk that is
		// attached at the last moment is kept. Our own are removed before.
		if len(disks.Attachments) > 0 {
			return d.removeDisk(ctx, id, vm, disks.Attachments[0])
		}
		request.Query = url.Values{"detach_only": {"true"}}
	}
	err = d.session.Ask(ctx, id, "Removing the VM", request, func() {
		d.session.Mirror.Drop(vm.ID)
	})
	if err == nil {
		d.session.Expect(id, engine.Removing)
	}
	return err
}

// removeDisk removes one of the machine's own disks. A locked one is being
// removed already.
func (d *driver) removeDisk(ctx context.Context, id uuid.UUID, vm ovirt.VM, a ovirt.DiskAttachment) error {
	if a.Disk.Status == "locked" {
		d.session.Mirror.Rest(id.String(), false)
		return nil
	}
	return d.session.Ask(ctx, id, fmt.Sprintf("Removing the disk %s", a.Disk.Alias), ovirt.Request{
		Method: http.MethodDelete, Path: []string{"disks", a.ID},
	}, func() { d.without(id, vm, a.ID) })
}

// without shows that a VM does not have a disk any more.
func (d *driver) without(id uuid.UUID, vm ovirt.VM, disk string) {
	rest := slices.DeleteFunc(slices.Clone(plan.Attachments(&vm)), func(o ovirt.DiskAttachment) bool { return o.ID == disk })
	vm.DiskAttachments = &ovirt.DiskAttachments{Attachments: rest}
	d.session.Mirror.Put(id.String(), vm, true)
}

// detach takes a disk out of a VM and keeps it.
func (d *driver) detach(ctx context.Context, id uuid.UUID, vm ovirt.VM, a ovirt.DiskAttachment) error {
	err := d.session.Ask(ctx, id, fmt.Sprintf("Detaching the disk %s, which is not the machine's", a.ID), ovirt.Request{
		Method: http.MethodDelete, Path: []string{"vms", vm.ID, "diskattachments", a.ID}, Query: url.Values{"detach_only": {"true"}},
	}, func() { d.without(id, vm, a.ID) })
	if hypervisor.ReasonFor(err, "") != infrav1.HypervisorErrorReason {
		return err
	}
	snapshots, listErr := d.snapshots(ctx, vm.ID)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	if len(snapshots) == 0 {
		return err
	}
	return plan.Failure(infrav1.DisksInSnapshotReason,
		"the VM has the disk %s, which is not the machine's, and snapshots (%s): the engine detaches no disk that is in a snapshot. Delete the snapshots to let the machine go: %w",
		a.ID, strings.Join(snapshots, ", "), err)
}

// snapshots returns the quoted descriptions of a VM's snapshots.
func (d *driver) snapshots(ctx context.Context, vm string) ([]string, error) {
	var found ovirt.Snapshots
	if err := d.session.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{"vms", vm, "snapshots"}, Into: &found}); err != nil {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var out []string
	for _, s := range found.Snapshots {
		if s.Type != "active" {
			out = append(out, strconv.Quote(s.Description))
		}
	}
	return out, nil
}
