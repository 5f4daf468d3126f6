package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
)

// Names of the parts of a VM that are changed to match its machine.
const (
	userData         = hypervisor.UserData
	tags             = "Tags"
	highAvailability = "HighAvailability"
)

const (
	// shutdownSeconds is how long Proxmox VE waits for a guest. A power-off ends the wait.
	shutdownSeconds = 3600
	// deleteSeconds is how long a request waits until an image is deleted.
	deleteSeconds = 10
)

// Shutdown requests a shutdown from the guest. It sends no request if the guest agent
// does not respond: Proxmox VE would wait for it.
func (d *driver) Shutdown(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) error {
	v, err := d.look(m)
	if err != nil || v.state != hypervisor.Running || v.machine.Busy {
		return err
	}
	if err := d.session.AgentResponds(ctx, v.VM.VMID); err != nil {
		if reason := hypervisor.ReasonFor(err, ""); reason == infrav1.EndpointUnreachableReason {
			return err
		}
		return hypervisor.Failure(infrav1.GuestUnreachableReason, "the guest agent does not respond: %w", err)
	}
	if err := d.leaveHA(ctx, &v); err != nil {
		return err
	}
	return d.power(ctx, &v, site.Shutdown, "shutdown", url.Values{"timeout": {strconv.Itoa(shutdownSeconds)}})
}

// Delete powers off the VM of m. After that, it deletes the image with the bootstrap data
// and the VM with its own disks. It fails if a disk of another user would be deleted too.
func (d *driver) Delete(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) error {
	v, err := d.look(m)
	if err == nil && v.state == hypervisor.Absent && v.VM == nil && v.Image.Storage != "" {
		return d.deleteImage(ctx, &v) // a user deleted the VM
	}
	if err != nil || v.state != hypervisor.Running && v.state != hypervisor.Stopped {
		return err
	}
	if v.state == hypervisor.Running {
		if err := d.leaveHA(ctx, &v); err != nil {
			return err
		}
		return d.power(ctx, &v, site.Stop, "stop", url.Values{"overrule-shutdown": {"1"}})
	}
	c, err := d.session.Config(ctx, v.VM.Node, v.VM.VMID)
	if err != nil {
		return fmt.Errorf("reading VM: %w", err)
	}
	foreign, err := plan.ForeignDisks(v.VM.VMID, c, v.Complete)
	switch {
	case err != nil:
		return hypervisor.Failure(infrav1.HypervisorErrorReason, "%w: add it again, with the names of the disks that may be deleted, such as scsi0, so that the machine can be deleted", err)
	case len(foreign) > 0:
		return hypervisor.Failure(infrav1.DeleteProtectedReason, "the VM has disks that do not belong to the machine and that would be deleted with it: %s. Reassign them to another VM so that the machine can be deleted", strings.Join(foreign, ", "))
	}
	if v.hasImage() {
		if err := d.deleteImage(ctx, &v); err != nil {
			return err
		}
	}
	return d.session.Act(ctx, v.id, site.Action{
		Verb: site.Destroy, VMID: v.VM.VMID, Node: v.VM.Node,
		Request: pve.Request{
			Method: http.MethodDelete, Path: site.VMPath(v.VM.Node, v.VM.VMID), Form: url.Values{"purge": {"1"}, "destroy-unreferenced-disks": {"0"}},
		},
	})
}

// deleteImage deletes an image with the bootstrap data. The node of the image is not
// always that of the VM, which may have been migrated. An image on local storage is lost
// with its node.
func (d *driver) deleteImage(ctx context.Context, v *view) error {
	at, found := v.Image, d.session.Site()
	if at.Node == "" && v.VM != nil {
		at.Node = v.VM.Node
	}
	if at.Storage == "" {
		at.Storage = found.StorageNamed(at.Node, v.Mark.ISO)
	}
	node := found.NodeOf(at.Storage, at.Node)
	switch {
	case node == "" && v.Image.Node != "" && found.IsRemoved(v.Image.Node):
		d.session.ImageDeleted(v.id, v.Image)
		return nil
	case node == "":
		return hypervisor.Failure(infrav1.PlacementNotFoundReason, "the image with the bootstrap data cannot be deleted: the storage %q on the node %s is not on an online node, or the user cannot see it. Make the storage available. If the node is lost, remove it from the Proxmox VE cluster", cmp.Or(at.Storage, v.Mark.ISO), at.Node)
	}
	at.Node = node
	d.session.SetImage(v.id, at)
	var upid string
	err := d.session.Do(ctx, pve.Request{
		Method: http.MethodDelete, Path: []string{"nodes", at.Node, "storage", at.Storage, "content", at.Storage + ":iso/" + plan.ImageName(v.id)},
		Form: url.Values{"delay": {strconv.Itoa(deleteSeconds)}}, Into: &upid,
	})
	switch {
	case err != nil && !pve.IsMissingVolume(err):
		return fmt.Errorf("deleting bootstrap data: %w", err)
	case upid != "":
		d.session.SetActive(v.id, true)
		return hypervisor.Waiting(infrav1.VMBusyReason, "the image with the bootstrap data is being deleted")
	}
	d.session.ImageDeleted(v.id, at)
	return nil
}

// Syncers returns the parts of a VM that are changed to match its machine. The user data
// of a control plane machine contains the keys of all CAs, so its removal does not wait for
// tags, which may fail indefinitely.
func (d *driver) Syncers() []hypervisor.Syncer[*proxmoxv1.NovaProxmoxMachine] {
	return []hypervisor.Syncer[*proxmoxv1.NovaProxmoxMachine]{
		{Name: userData, AfterJoin: true, Apply: d.removeUserData},
		{Name: tags, Apply: d.syncTags},
		{Name: hypervisor.Resize, AfterJoin: true, Apply: d.resize},
		{Name: highAvailability, AfterJoin: true, Apply: d.syncHA},
	}
}

// removeUserData empties the drive with the bootstrap data, and deletes the image after
// that. In this order the VM can start at any time. The tag that names the storage is
// removed with the first request: a manager that starts between both requests reads which
// images exist.
func (d *driver) removeUserData(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) error {
	v, err := d.look(m)
	if err != nil || v.state != hypervisor.Running || !v.Complete || !v.hasImage() {
		return err
	}
	if storage := d.session.Site().StorageNamed(v.VM.Node, v.Mark.ISO); v.Image.Storage == "" && storage != "" {
		v.Image = site.Image{Node: v.VM.Node, Storage: storage}
		d.session.SetImage(v.id, v.Image)
	}
	if v.Mark.ISO != "" {
		v.Mark.ISO = ""
		left, _ := plan.TagsWith(v.VM.TagList(), v.Mark.Tags())
		if err := d.setTags(ctx, &v, left, url.Values{plan.ISODrive: {plan.EmptyDrive}}, v.VM.HAState); err != nil {
			return fmt.Errorf("detaching bootstrap data: %w", err)
		}
		if v, err = d.look(m); err != nil || v.Mark.ISO != "" {
			return err // another action runs
		}
	}
	return d.deleteImage(ctx, &v)
}

// syncTags sets the tags of the VM.
func (d *driver) syncTags(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) error {
	v, err := d.look(m)
	if err != nil || !v.Complete || v.state != hypervisor.Running && v.state != hypervisor.Stopped {
		return err
	}
	wanted, same := plan.WantedTags(d.clusterID(), &d.cluster.Spec, m, v.Mark, v.VM.TagList())
	if same {
		return nil
	}
	return d.setTags(ctx, &v, wanted, url.Values{}, v.VM.HAState)
}

// setTags writes the tags of a VM with other options, unless an action on the VM runs. state
// is the state in the HA manager.
func (d *driver) setTags(ctx context.Context, v *view, wanted []string, form url.Values, state string) error {
	form.Set("tags", strings.Join(wanted, ";"))
	return d.session.Act(ctx, v.id, site.Action{
		Verb: site.Tag, VMID: v.VM.VMID, Node: v.VM.Node,
		Change:  func(vm *pve.Resource) { vm.Tags, vm.HAState = strings.Join(wanted, ";"), state },
		Request: pve.Request{Method: http.MethodPut, Path: site.VMPath(v.VM.Node, v.VM.VMID, "config"), Form: form},
	})
}
