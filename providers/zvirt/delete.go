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
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Delete powers off the VM of m. After that, it detaches the disks that the
// machine does not own, one per call, and removes the VM with its own disks. If
// a user attaches a disk to a linked clone after the last read, that disk is
// lost: an engine cannot remove a VM that depends on a template without its
// disks.
func (d *driver) Delete(ctx context.Context, m *zvirtv1.NovaZVirtMachine) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	view, _ := d.lookup(id, m)
	state, _, err := d.state(id, m, view)
	if err != nil || state != hypervisor.Running && state != hypervisor.Stopped {
		return err
	}
	vm := *view.VM
	if ptr.Deref(vm.DeleteProtected, false) {
		return hypervisor.Failure(infrav1.DeleteProtectedReason, "the VM is protected against deletion in the engine: remove the protection there so that the machine can be deleted")
	}
	if vm.Status != "down" {
		return d.session.Act(ctx, id, "Powering off", ovirt.Request{
			Method: http.MethodPost, Path: []string{"vms", vm.ID, "stop"}, Body: ovirt.Action{},
		}, func() {
			vm.Status = "powering_down"
			d.session.SetPowerOffRequested(id)
			d.session.Cache.Put(id.String(), vm, false)
		})
	}
	// A user may have attached a disk since the last read. The engine would
	// remove it together with the VM.
	var disks ovirt.DiskAttachments
	err = d.session.Do(ctx, ovirt.Request{
		Method: http.MethodGet, Path: []string{"vms", vm.ID, "diskattachments"}, Query: url.Values{"follow": {"disk"}}, Into: &disks,
	})
	if err != nil {
		return err
	}
	vm.DiskAttachments = &disks
	if i := slices.IndexFunc(disks.Attachments, func(a ovirt.DiskAttachment) bool { return !plan.IsOwned(a, id) }); i >= 0 {
		return d.detach(ctx, id, vm, disks.Attachments[i])
	}
	request := ovirt.Request{Method: http.MethodDelete, Path: []string{"vms", vm.ID}}
	if plan.IsClone(&vm) {
		// An engine can remove such a VM without its disks, so that a disk is kept
		// that a user attaches at the last moment. The machine's own disks are
		// removed before.
		if len(disks.Attachments) > 0 {
			return d.removeDisk(ctx, id, vm, disks.Attachments[0])
		}
		request.Query = url.Values{"detach_only": {"true"}}
	}
	err = d.session.Act(ctx, id, "Removing the VM", request, func() {
		d.session.Cache.Remove(vm.ID)
	})
	if err == nil {
		d.session.SetPending(id, engine.Removing)
	}
	return err
}

// removeDisk removes one of the machine's own disks. The engine is already
// removing a locked disk.
func (d *driver) removeDisk(ctx context.Context, id uuid.UUID, vm ovirt.VM, a ovirt.DiskAttachment) error {
	if a.Disk.Status == "locked" {
		d.session.Cache.SetIdle(id.String(), false)
		return nil
	}
	return d.session.Act(ctx, id, fmt.Sprintf("Removing the disk %s", a.Disk.Alias), ovirt.Request{
		Method: http.MethodDelete, Path: []string{"disks", a.ID},
	}, func() { d.removeFromCache(id, vm, a.ID) })
}

// removeFromCache removes a disk from the cached VM.
func (d *driver) removeFromCache(id uuid.UUID, vm ovirt.VM, disk string) {
	rest := slices.DeleteFunc(slices.Clone(plan.Attachments(&vm)), func(o ovirt.DiskAttachment) bool { return o.ID == disk })
	vm.DiskAttachments = &ovirt.DiskAttachments{Attachments: rest}
	d.session.Cache.Put(id.String(), vm, true)
}

// detach detaches a disk from a VM and keeps the disk.
func (d *driver) detach(ctx context.Context, id uuid.UUID, vm ovirt.VM, a ovirt.DiskAttachment) error {
	err := d.session.Act(ctx, id, fmt.Sprintf("Detaching the disk %s, which the machine does not own", a.ID), ovirt.Request{
		Method: http.MethodDelete, Path: []string{"vms", vm.ID, "diskattachments", a.ID}, Query: url.Values{"detach_only": {"true"}},
	}, func() { d.removeFromCache(id, vm, a.ID) })
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
	return hypervisor.Failure(infrav1.DisksInSnapshotReason,
		"the VM has the disk %s, which the machine does not own, and snapshots (%s): the engine cannot detach a disk that is in a snapshot. Delete the snapshots so that the machine can be deleted: %w",
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
