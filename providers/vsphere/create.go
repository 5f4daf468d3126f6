package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/resolve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// tpmPolicyVersion is the first version of the API in which a clone request can
// give the clone a TPM without the secrets of the source.
const tpmPolicyVersion = "8.0.0.1"

// Create requests a clone of the template: one task that also sets the
// hardware, the disks, the network, the placement and the user data, and
// powers on the VM.
func (d *driver) Create(ctx context.Context, m *vspherev1.NovaVSphereMachine, l hypervisor.CreateOptions) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	if state != hypervisor.Absent {
		return nil
	}
	if d.session.inv.IsRejected(id, vm) {
		return d.deleteRejected(ctx, id, m, vm)
	}
	if err := d.session.inv.UUIDTaken(id, d.session.Timeouts.RecloneDelay); err != nil {
		return err
	}
	p, err := d.cloneRequest(ctx, id, m, l)
	if err != nil {
		return err
	}
	if err := d.session.inv.CheckAddressesFree(id, p.staticAddresses); err != nil {
		return err
	}
	if err := d.acquireCreationSlot(hypervisor.KeyOf(m)); err != nil {
		return err
	}
	datastore, err := d.names.Datastore(ctx, &p.target, p.requiredSpace, p.req)
	if err != nil {
		d.session.creations.Done(hypervisor.KeyOf(m))
		return err
	}
	spec.SetDatastore(&p.req.Spec.Location, datastore, p.target.Policy(), p.diskKeys)
	if !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Creating, "Cloning from "+p.source) {
		return nil
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.CloneVM_Task(ctx, c, p.req)
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}

// cloneRequest is a clone request that is ready to be sent.
type cloneRequest struct {
	req *types.CloneVM_Task
	// diskKeys are the keys of the source's disks that the clone keeps.
	diskKeys []int32
	// source names the source of the clone in messages.
	source string
	// staticAddresses are the VM's addresses that do not come from DHCP, each
	// with the prefix length of its network.
	staticAddresses []string
	// target is where the VM is created, and requiredSpace is the most space that
	// it takes.
	target        resolve.Placement
	requiredSpace int64
}

// cloneRequest builds the clone request of a machine. If the machine does not
// fit its template, cloneRequest reads the template again first: such an error
// is terminal, so the controller does not retry soon.
func (d *driver) cloneRequest(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, l hypervisor.CreateOptions) (*cloneRequest, error) {
	p, target, err := d.names.CloneInputs(ctx, id, m, l)
	if err != nil {
		return nil, err
	}
	config, err := p.Config(id, m, l)
	if hypervisor.ReasonFor(err, "") == infrav1.InvalidSpecReason {
		d.session.names.DropTemplates()
		if p, target, err = d.names.CloneInputs(ctx, id, m, l); err != nil {
			return nil, err
		}
		config, err = p.Config(id, m, l)
	}
	if err != nil {
		return nil, err
	}
	out := &cloneRequest{source: p.Effective.Template.String(), diskKeys: spec.DiskKeys(p.Template), target: target, requiredSpace: spec.RequiredSpace(p.Template, &m.Spec.Disks), staticAddresses: p.StaticAddresses()}
	out.req = &types.CloneVM_Task{This: p.Template.Ref, Folder: target.Folder, Name: m.Spec.VMName(m), Spec: types.VirtualMachineCloneSpec{
		Location: spec.Location(target.Host(id, d.session.inv.Failures(id)), target.Pool, target.Policy(), p.Source),
		Config:   config,
		Snapshot: p.Source.Snapshot,
		// The hardware version is upgraded while the VM is off.
		PowerOn: spec.PendingUpgrade(m, p.Template.Version) == "",
	}}
	if p.Template.TPM && d.session.SupportsVersion(tpmPolicyVersion) {
		// Secrets in a TPM belong to one machine.
		out.req.Spec.TpmProvisionPolicy = string(types.VirtualMachineCloneSpecTpmProvisionPolicyReplace)
	}
	return out, nil
}

// acquireCreationSlot takes a slot for the creation of the VM of the machine
// called key. If too many creations are under way at the vCenter, the error
// states the machine's position in the queue, and the key is delivered once a
// slot is free. Only creations take these slots, so no other operation waits
// for them.
func (d *driver) acquireCreationSlot(key hypervisor.Key) error {
	creations := d.session.creations
	if creations.Acquire(key) {
		return nil
	}
	return hypervisor.Waiting(infrav1.RequestQueuedReason, "Queued: vCenter %s creates as many VMs as the limit allows; this VM is number %d in the queue of its namespace",
		d.session.Server(), creations.Position(key))
}

// releaseCreationSlot releases the slot of a machine whose VM is not being
// created. If the machine is being deleted, it also leaves the queue.
func (d *driver) releaseCreationSlot(key hypervisor.Key, state hypervisor.State, deleting bool) {
	switch {
	case state == hypervisor.Busy:
	case deleting:
		d.session.creations.Release(key)
	default:
		d.session.creations.Done(key)
	}
}
