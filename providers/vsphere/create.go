package vsphere

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Settings that store facts about a VM which no other property has.
const (
	// zoneKey is the failure domain in which the VM was created.
	zoneKey = "nova.failureDomain"
	// hostGroupKey is the host group on which the VM was created.
	hostGroupKey = "nova.hostGroup"
	// machineKey is the name of the machine for which the VM was created.
	machineKey = "nova.machine"
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
	setDatastore(p, datastore)
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

// cloneInputs are the clone inputs: the objects that a machine names, resolved.
type cloneInputs struct {
	effectiveSpec
	nics           []nic
	backings       []types.BaseVirtualDeviceBackingInfo
	target         resolvedPlacement
	template       *template
	source         cloneSource
	diskPlacements []diskPlacement
}

// resolveCloneInputs resolves the objects that a machine names. Names that are
// resolved already need no request.
func (d *driver) resolveCloneInputs(ctx context.Context, id uuid.UUID, m *infrav1.NovaVSphereMachine, l hypervisor.CreateOptions) (p cloneInputs, err error) {
	r := d.session.resolver
	if err := d.bounds.checkExtraConfig(m.Spec.Hardware.ExtraConfig); err != nil {
		return p, err
	}
	if p.effectiveSpec, err = newEffectiveSpec(d.cluster, &m.Spec, l.Zone); err != nil {
		return p, err
	}
	if p.nics, err = newNICs(id, p.interfaces, l.Interfaces); err != nil {
		return p, err
	}
	if p.target, err = d.resolvePlacement(ctx, &p.placement); err != nil {
		return p, err
	}
	if p.template, err = d.resolveTemplate(ctx, m, &p.effectiveSpec, &p.target); err != nil {
		return p, err
	}
	if p.source, err = p.template.cloneSource(m.Spec.CloneMode, p.effectiveSpec.template.Snapshot, &m.Spec.Disks); err != nil {
		r.dropAll() // the missing snapshot may be taken later
		return p, err
	}
	if p.source.snapshot != nil {
		if p.template, err = r.templateAtSnapshot(ctx, p.template, *p.source.snapshot); err != nil {
			return p, err
		}
	}
	for i := range p.nics {
		if p.nics[i].Network == "" {
			return p, kit.InvalidSpec("network.interfaces[%d].network is not set, and neither is spec.network of the NovaVSphereCluster", i)
		}
		found, err := d.network(ctx, p.placement.Datacenter, p.nics[i].Network)
		if err != nil {
			return p, err
		}
		p.backings = append(p.backings, found.backing)
	}
	p.diskPlacements, err = d.dataDiskPlacements(ctx, &p.effectiveSpec, &m.Spec.Disks, &p.target)
	return p, err
}

// config returns the settings of the clone that differ from those of its
// source.
func (p *cloneInputs) config(id uuid.UUID, m *infrav1.NovaVSphereMachine, l hypervisor.CreateOptions) (*types.VirtualMachineConfigSpec, error) {
	if p.source.linked && m.Spec.Hardware.Encryption.KeyProvider != "" {
		return nil, kit.InvalidSpec("hardware.encryption.keyID and keyProvider cannot be set for a linked clone, which has the key of its template")
	}
	guestSettings, err := guestinfo(m.Name, id, p.nics, l)
	if err != nil {
		return nil, err
	}
	changes, slotList, err := disks(p.template, &m.Spec.Disks, p.diskPlacements)
	if err != nil {
		return nil, err
	}
	spec := &types.VirtualMachineConfigSpec{
		InstanceUuid: id.String(), Annotation: annotation(m, l.Zone), DeviceChange: removeNICs(p.template),
		// cloud-init prefers the properties of an OVA to guestinfo.
		VAppConfigRemoved: ptr.To(true),
	}
	for i := range p.nics {
		spec.DeviceChange = append(spec.DeviceChange, add(p.nics[i].device(i, p.backings[i])))
		if p.nics[i].Type == infrav1.InterfaceSRIOV {
			spec.MemoryReservationLockedToMax = ptr.To(true)
		}
	}
	spec.DeviceChange = append(spec.DeviceChange, changes...)
	configureHardware(spec, &m.Spec.Hardware, p.template)
	spec.ExtraConfig = append(spec.ExtraConfig, guestSettings...)
	// The guest finds its disks by the UUIDs that storage drivers use.
	for _, option := range [][2]string{{"disk.EnableUUID", "TRUE"}, {disksKey, slotList}, {machineKey, m.Name}, {zoneKey, l.Zone}, {hostGroupKey, p.placement.HostGroup}, {userDataMarkerKey, "present"}} {
		// An empty value removes the key that the template may have.
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: option[0], Value: option[1]})
	}
	return spec, nil
}

// cloneRequest builds the clone request of a machine. If the machine does not
// fit its template, cloneRequest reads the template again first: such an error
// is terminal, so the controller does not retry soon.
func (d *driver) cloneRequest(ctx context.Context, id uuid.UUID, m *infrav1.NovaVSphereMachine, l hypervisor.CreateOptions) (*cloneRequest, error) {
	p, err := d.resolveCloneInputs(ctx, id, m, l)
	if err != nil {
		return nil, err
	}
	spec, err := p.config(id, m, l)
	if hypervisor.ReasonFor(err, "") == infrav1.InvalidSpecReason {
		d.session.resolver.dropTemplates()
		if p, err = d.resolveCloneInputs(ctx, id, m, l); err != nil {
			return nil, err
		}
		spec, err = p.config(id, m, l)
	}
	if err != nil {
		return nil, err
	}
	out := &cloneRequest{source: p.effectiveSpec.template.String(), diskKeys: diskKeys(p.template), storage: p.target.storage, requiredSpace: requiredSpace(p.template, &m.Spec.Disks)}
	for i := range p.nics {
		out.staticAddresses = append(out.staticAddresses, p.nics[i].static()...)
	}
	out.req = &types.CloneVM_Task{This: p.template.ref, Folder: p.target.folder, Name: m.Spec.VMName(m), Spec: types.VirtualMachineCloneSpec{
		Location: location(p.target.host(id, d.session.inv.failures(id)), &p.target, p.source),
		Config:   spec,
		Snapshot: p.source.snapshot,
		// The hardware version is upgraded while the VM is off.
		PowerOn: pendingUpgrade(m, p.template.version) == "",
	}}
	if p.template.tpm && d.session.supportsVersion(tpmPolicyVersion) {
		// Secrets in a TPM belong to one machine.
		out.req.Spec.TpmProvisionPolicy = string(types.VirtualMachineCloneSpecTpmProvisionPolicyReplace)
	}
	return out, nil
}

// location returns the placement of a clone, except for its datastore.
func location(host *ref, target *resolvedPlacement, source cloneSource) types.VirtualMachineRelocateSpec {
	at := types.VirtualMachineRelocateSpec{Pool: &target.pool, Host: host, Profile: profile(target.storage.policy)}
	if source.linked {
		at.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	}
	return at
}

// setDatastore sets the datastore of a clone and of its disks.
func setDatastore(p *cloneRequest, datastore ref) {
	at := &p.req.Spec.Location
	at.Datastore = &datastore
	if p.storage.policy == "" {
		return
	}
	// A storage policy of the VM applies to its configuration files only.
	for _, key := range p.diskKeys {
		at.Disk = append(at.Disk, types.VirtualMachineRelocateSpecDiskLocator{
			DiskId: key, Datastore: datastore, DiskMoveType: at.DiskMoveType, Profile: profile(p.storage.policy),
		})
	}
}

// requiredSpace returns the most space that a clone takes.
func requiredSpace(t *template, d *infrav1.NovaVSphereDisks) int64 {
	own, required := newDiskDevices(t.devices).disks, int64(0)
	for i, size := range sizes(own, d) {
		required += max(capacityOf(own[i]), size<<30)
	}
	for i := range d.Data {
		required += d.Data[i].SizeGiB << 30
	}
	return required
}

// annotationPrefix is the prefix of the notes of each machine's VM.
const annotationPrefix = "Cluster API machine "

// annotation returns the notes that vCenter shows for a VM.
func annotation(m *infrav1.NovaVSphereMachine, zone string) string {
	text := fmt.Sprintf(annotationPrefix+"%s/%s of cluster %s. Do not change or remove it here.",
		m.Namespace, m.Name, m.Labels[clusterv1.ClusterNameLabel])
	if zone != "" {
		text += "\nFailure domain: " + zone
	}
	return text
}

// removeNICs removes the template's network interfaces.
func removeNICs(t *template) []types.BaseVirtualDeviceConfigSpec {
	var out []types.BaseVirtualDeviceConfigSpec
	for _, device := range t.devices {
		if _, isNIC := device.(types.BaseVirtualEthernetCard); isNIC {
			out = append(out, &types.VirtualDeviceConfigSpec{
				Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: device,
			})
		}
	}
	return out
}

// templateRefs returns the templates from which the VM of m may be cloned, in
// any failure domain. An object that cannot be resolved cannot be cloned
// either.
func (d *driver) templateRefs(ctx context.Context, m *infrav1.NovaVSphereMachine) ([]ref, error) {
	var found []ref
	for _, zone := range d.zones() {
		g, err := newEffectiveSpec(d.cluster, &m.Spec, zone)
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
func (d *driver) templateRef(ctx context.Context, g *effectiveSpec) (ref, error) {
	if g.template.ContentLibrary.Item == "" {
		t, err := d.template(ctx, g)
		if err != nil {
			return ref{}, err
		}
		return t.ref, nil
	}
	item, err := d.item(ctx, g)
	if err != nil || item.vm != (ref{}) {
		return item.vm, err
	}
	to, err := d.resolvePlacement(ctx, &g.placement)
	if err != nil {
		return ref{}, err
	}
	i := newImage(item, &to)
	state, err := d.session.resolver.image(ctx, &i)
	return state.vm, err
}
