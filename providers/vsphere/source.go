package vsphere

import (
	"context"
	"strings"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// template is a VM that is cloned.
type template struct {
	ref ref
	// devices are its virtual devices.
	devices []types.BaseVirtualDevice
	// cpus and memoryMiB are its size, guest is its guest ID, and version is
	// its hardware version.
	cpus           int32
	memoryMiB      int64
	guest, version string
	// tpm is set if it has a virtual TPM.
	tpm bool
	// current is its current snapshot, and snapshots are all snapshots.
	current   *ref
	snapshots []types.VirtualMachineSnapshotTree
	// read is when it was read. Another VM may get its name at any time, and
	// its hardware and snapshots may change.
	read time.Time
}

func (t *template) readAt() time.Time { return t.read }

// templateProperties are the properties that are read of a template.
var templateProperties = []string{"config.hardware", "config.guestId", "config.version", "snapshot"}

// readTemplate reads the properties that a clone of a VM depends on.
func readTemplate(ctx context.Context, c *vim25.Client, from ref) (*template, error) {
	var vm mo.VirtualMachine
	if err := object.NewCommon(c, from).Properties(ctx, from, templateProperties, &vm); err != nil {
		return nil, err
	}
	t := &template{ref: from, read: time.Now()}
	if vm.Config != nil {
		t.guest, t.version = vm.Config.GuestId, vm.Config.Version
		t.setHardware(&vm.Config.Hardware)
	}
	if vm.Snapshot != nil {
		t.current, t.snapshots = vm.Snapshot.CurrentSnapshot, vm.Snapshot.RootSnapshotList
	}
	return t, nil
}

func (t *template) setHardware(h *types.VirtualHardware) {
	t.devices, t.cpus, t.memoryMiB, t.tpm = h.Device, h.NumCPU, int64(h.MemoryMB), false
	for _, device := range h.Device {
		if _, ok := device.(*types.VirtualTPM); ok {
			t.tpm = true
		}
	}
}

// resolveTemplate resolves the template from which the VM of a machine is
// cloned. The image of a library item is stored in target.
func (d *driver) resolveTemplate(ctx context.Context, m *infrav1.NovaVSphereMachine, g *effectiveSpec, target *resolvedPlacement) (*template, error) {
	if g.template.ContentLibrary.Item != "" {
		return d.image(ctx, m, g, target)
	}
	return d.template(ctx, g)
}

// resolvedVM is the VM to which a name, path or UUID was resolved. It may
// change at any time, so it is read again after some time.
type resolvedVM struct {
	ref  ref
	read time.Time
}

func (l resolvedVM) readAt() time.Time { return l.read }

// resolveVM finds the VM that is cloned for g. It reads no properties of the
// VM.
func (r *resolver) resolveVM(ctx context.Context, g *effectiveSpec) (ref, error) {
	name, id := g.template.Name, g.template.ID
	switch {
	case strings.HasPrefix(id, "vm-"):
		return ref{Type: "VirtualMachine", Value: id}, nil
	case id != "":
		return r.vmWithUUID(ctx, strings.ToLower(id))
	case name == "":
		return ref{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "neither the machine nor the NovaVSphereCluster names a template: set spec.template")
	}
	found, err := resolveIn(ctx, r, g.placement.Datacenter, "template", name, infrav1.TemplateNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (resolvedVM, error) {
			found, err := f.VirtualMachine(ctx, name)
			at, err := refOf(found, err)
			return resolvedVM{ref: at, read: time.Now()}, err
		})
	return found.ref, err
}

// templateAt reads the template at the reference to which g was resolved.
func (r *resolver) templateAt(ctx context.Context, g *effectiveSpec, at ref) (*template, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*template, error) {
		t, err := readTemplate(ctx, c, at)
		if vcenter.IsNotFound(err) {
			return nil, r.templateNotFound(g, at)
		}
		return t, err
	}, "reference", at.Value)
}

// templateNotFound drops the references to which g was resolved and that do not
// exist any more, and returns the error for that.
func (r *resolver) templateNotFound(g *effectiveSpec, at ref) error {
	r.drop("template", g.placement.Datacenter, g.template.Name)
	r.drop("uuid", strings.ToLower(g.template.ID))
	return hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template %s does not exist in vCenter, or the account cannot see it", at.Value)
}

// vmWithUUID resolves a VM by its instance UUID, or else by its BIOS UUID.
func (r *resolver) vmWithUUID(ctx context.Context, id string) (ref, error) {
	found, err := resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (resolvedVM, error) {
		for _, instance := range []bool{true, false} {
			res, err := methods.FindAllByUuid(ctx, c, &types.FindAllByUuid{
				This: *c.ServiceContent.SearchIndex, Uuid: id, VmSearch: true, InstanceUuid: ptr.To(instance),
			})
			if err != nil {
				return resolvedVM{}, err
			}
			switch len(res.Returnval) {
			case 0:
				continue
			case 1:
				return resolvedVM{ref: res.Returnval[0], read: time.Now()}, nil
			}
			return resolvedVM{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "%d VMs have the BIOS UUID %s: use the template's instance UUID", len(res.Returnval), id)
		}
		return resolvedVM{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "no template in vCenter has the UUID %s, or the account cannot see it", id)
	}, "uuid", id)
	return found.ref, err
}

// cloneSource is the state of a template that is cloned.
type cloneSource struct {
	// snapshot is the snapshot that is cloned; nil for the current state of the
	// template.
	snapshot *ref
	// linked means that the clone shares the snapshot's disks.
	linked bool
}

// cloneSource decides how t is cloned.
func (t *template) cloneSource(mode infrav1.CloneMode, snapshot string, d *infrav1.NovaVSphereDisks) (cloneSource, error) {
	var from *ref
	if snapshot != "" {
		found := findSnapshots(t.snapshots, snapshot)
		switch len(found) {
		case 0:
			return cloneSource{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template has no snapshot %q", snapshot)
		case 1:
			from = &found[0]
		default:
			return cloneSource{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template has %d snapshots called %q: give the path of one", len(found), snapshot)
		}
	}
	if mode == "" || mode == infrav1.CloneFull {
		return cloneSource{snapshot: from}, nil
	}
	base := from
	if base == nil {
		base = t.current
	}
	var why string
	switch {
	case base == nil:
		why = "the template has no snapshot"
	case growsDisks(t, d):
		why = "a disk that is shared cannot grow"
	default:
		return cloneSource{snapshot: base, linked: true}, nil
	}
	if mode == infrav1.CloneLinked {
		return cloneSource{}, hypervisor.Failure(infrav1.InvalidSpecReason, "A linked clone is not possible because %s: set cloneMode to LinkedOrFull to have the disks copied then", why)
	}
	return cloneSource{snapshot: from}, nil
}

// findSnapshots returns the snapshots with a name, or the snapshot at a path.
func findSnapshots(tree []types.VirtualMachineSnapshotTree, wanted string) []ref {
	var found []ref
	var walk func([]types.VirtualMachineSnapshotTree, string)
	walk = func(tree []types.VirtualMachineSnapshotTree, above string) {
		for i := range tree {
			path := above + tree[i].Name
			if tree[i].Name == wanted || path == strings.TrimPrefix(wanted, "/") {
				found = append(found, tree[i].Snapshot)
			}
			walk(tree[i].ChildSnapshotList, path+"/")
		}
	}
	walk(tree, "")
	return found
}

// templateAtSnapshot returns the template in the state of one of its snapshots.
func (r *resolver) templateAtSnapshot(ctx context.Context, t *template, snapshot ref) (*template, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*template, error) {
		var s mo.VirtualMachineSnapshot
		if err := object.NewCommon(c, snapshot).Properties(ctx, snapshot, []string{"config.hardware"}, &s); err != nil {
			return nil, err
		}
		changed := *t
		changed.setHardware(&s.Config.Hardware)
		return &changed, nil
	}, "snapshot", t.ref.Value, snapshot.Value)
}
