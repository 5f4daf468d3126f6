package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// tpmPolicyVersion is the first version of the API in which a clone request can
// give the clone a TPM without the secrets of the source.
const tpmPolicyVersion = "8.0.0.1"

// Create requests a clone of the template: one task that also sets the
// hardware, the disks, the network, the placement and the user data, and
// powers on the VM.
func (d *driver) Create(ctx context.Context, m *infrav1.NovaVSphereMachine, l hypervisor.CreateOptions) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	if state != hypervisor.Absent {
		return nil
	}
	if d.session.inv.isRejected(id, vm) {
		return d.deleteRejected(ctx, id, m, vm)
	}
	if err := d.uuidTaken(id); err != nil {
		return err
	}
	p, err := d.cloneRequest(ctx, id, m, l)
	if err != nil {
		return err
	}
	if err := d.session.inv.checkAddressesFree(id, p.staticAddresses); err != nil {
		return err
	}
	if err := d.acquireCreationSlot(hypervisor.KeyOf(m)); err != nil {
		return err
	}
	datastore, err := d.datastore(ctx, p)
	if err != nil {
		d.session.creations.Done(hypervisor.KeyOf(m))
		return err
	}
	spec.SetDatastore(&p.req.Spec.Location, datastore, p.storage.policy, p.diskKeys)
	if !d.session.inv.begin(id, hypervisor.KeyOf(m), creating, "Cloning from "+p.source) {
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
	// storage is where the VM is stored, and requiredSpace is the most space that
	// it takes.
	storage       storage
	requiredSpace int64
}

// datastore chooses the datastore of a clone. It is called right before the
// clone is requested, because the chosen datastore counts the space as used.
func (d *driver) datastore(ctx context.Context, p *cloneRequest) (ref, error) {
	switch {
	case p.storage.pod != (ref{}):
		return d.recommendDatastore(ctx, p.storage.pod, p.req)
	case p.storage.candidates != nil:
		return p.storage.candidates.pick(p.requiredSpace, p.storage.allowed), nil
	default:
		return p.storage.datastore, nil
	}
}

// resolveCloneInputs resolves the objects that a machine names. Names that are
// resolved already need no request.
func (d *driver) resolveCloneInputs(ctx context.Context, id uuid.UUID, m *infrav1.NovaVSphereMachine, l hypervisor.CreateOptions) (p spec.Clone, target resolvedPlacement, err error) {
	r := d.session.resolver
	if err := d.bounds.checkExtraConfig(m.Spec.Hardware.ExtraConfig); err != nil {
		return p, target, err
	}
	if p.Effective, err = spec.NewEffective(d.cluster, &m.Spec, l.Zone); err != nil {
		return p, target, err
	}
	if p.NICs, err = spec.NewNICs(id, p.Interfaces, l.Interfaces); err != nil {
		return p, target, err
	}
	if target, err = d.resolvePlacement(ctx, &p.Placement); err != nil {
		return p, target, err
	}
	if p.Template, err = d.resolveTemplate(ctx, m, &p.Effective, &target); err != nil {
		return p, target, err
	}
	if p.Source, err = p.Template.Source(m.Spec.CloneMode, p.Effective.Template.Snapshot, &m.Spec.Disks); err != nil {
		r.dropAll() // the missing snapshot may be taken later
		return p, target, err
	}
	if p.Source.Snapshot != nil {
		if p.Template, err = r.templateAtSnapshot(ctx, p.Template, *p.Source.Snapshot); err != nil {
			return p, target, err
		}
	}
	for i := range p.NICs {
		if p.NICs[i].Network == "" {
			return p, target, kit.InvalidSpec("network.interfaces[%d].network is not set, and neither is spec.network of the NovaVSphereCluster", i)
		}
		found, err := d.network(ctx, p.Placement.Datacenter, p.NICs[i].Network)
		if err != nil {
			return p, target, err
		}
		p.Backings = append(p.Backings, found.backing)
	}
	p.DiskPlacements, err = d.dataDiskPlacements(ctx, &p.Effective, &m.Spec.Disks, &target)
	return p, target, err
}

// cloneRequest builds the clone request of a machine. If the machine does not
// fit its template, cloneRequest reads the template again first: such an error
// is terminal, so the controller does not retry soon.
func (d *driver) cloneRequest(ctx context.Context, id uuid.UUID, m *infrav1.NovaVSphereMachine, l hypervisor.CreateOptions) (*cloneRequest, error) {
	p, target, err := d.resolveCloneInputs(ctx, id, m, l)
	if err != nil {
		return nil, err
	}
	config, err := p.Config(id, m, l)
	if hypervisor.ReasonFor(err, "") == infrav1.InvalidSpecReason {
		d.session.resolver.dropTemplates()
		if p, target, err = d.resolveCloneInputs(ctx, id, m, l); err != nil {
			return nil, err
		}
		config, err = p.Config(id, m, l)
	}
	if err != nil {
		return nil, err
	}
	out := &cloneRequest{source: p.Effective.Template.String(), diskKeys: spec.DiskKeys(p.Template), storage: target.storage, requiredSpace: spec.RequiredSpace(p.Template, &m.Spec.Disks), staticAddresses: p.StaticAddresses()}
	out.req = &types.CloneVM_Task{This: p.Template.Ref, Folder: target.folder, Name: m.Spec.VMName(m), Spec: types.VirtualMachineCloneSpec{
		Location: spec.Location(target.host(id, d.session.inv.failures(id)), target.pool, target.storage.policy, p.Source),
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

// templateRefs returns the templates from which the VM of m may be cloned, in
// any failure domain. An object that cannot be resolved cannot be cloned
// either.
func (d *driver) templateRefs(ctx context.Context, m *infrav1.NovaVSphereMachine) ([]ref, error) {
	var found []ref
	for _, zone := range spec.Zones(d.cluster) {
		g, err := spec.NewEffective(d.cluster, &m.Spec, zone)
		if err != nil {
			continue
		}
		at, err := d.templateRef(ctx, &g)
		if isUnresolved(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if at != (ref{}) {
			found = append(found, at)
		}
	}
	return found, nil
}

// isUnresolved reports whether err is about an object that a machine names,
// and not about the connection to vCenter.
func isUnresolved(err error) bool {
	switch hypervisor.ReasonFor(err, "") {
	case infrav1.TemplateNotFoundReason, infrav1.PlacementNotFoundReason, infrav1.NameConflictReason, infrav1.InvalidSpecReason, infrav1.InsufficientResourcesReason,
		infrav1.OutOfBoundsReason:
		return true
	}
	return false
}

// templateRef returns the template that is cloned for g. It returns none for an
// image that does not exist yet.
func (d *driver) templateRef(ctx context.Context, g *spec.Effective) (ref, error) {
	if g.Template.ContentLibrary.Item == "" {
		t, err := d.template(ctx, g)
		if err != nil {
			return ref{}, err
		}
		return t.Ref, nil
	}
	item, err := d.item(ctx, g)
	if err != nil || item.vm != (ref{}) {
		return item.vm, err
	}
	to, err := d.resolvePlacement(ctx, &g.Placement)
	if err != nil {
		return ref{}, err
	}
	i := newImage(item, &to)
	state, err := d.session.resolver.image(ctx, &i)
	return state.vm, err
}
