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
)

// template is a VM to clone.
type template struct {
	ref ref
	// devices are its hardware.
	devices []types.BaseVirtualDevice
	// cpus and memoryMiB are its size, guest what runs in it and version that
	// of its hardware.
	cpus           int32
	memoryMiB      int64
	guest, version string
	// tpm is set when it has a virtual TPM.
	tpm bool
	// current is its current snapshot, and snapshots are all.
	current   *ref
	snapshots []types.VirtualMachineSnapshotTree
	// read is when: its name may become another's at any time, and it may get
	// other hardware and snapshots.
	read time.Time
}

func (t *template) readAt() time.Time { return t.read }

// templateProperties are what is read of a template.
var templateProperties = []string{"config.hardware", "config.guestId", "config.version", "snapshot"}

// readTemplate reads what a clone of vm has to know.
func readTemplate(ctx context.Context, c *vim25.Client, from ref) (*template, error) {
	var vm mo.VirtualMachine
	if err := object.NewCommon(c, from).Properties(ctx, from, templateProperties, &vm); err != nil {
		return nil, err
	}
	t := &template{ref: from, read: time.Now()}
	if vm.Config != nil {
		t.guest, t.version = vm.Config.GuestId, vm.Config.Version
		t.equipped(&vm.Config.Hardware)
	}
	if vm.Snapshot != nil {
		t.current, t.snapshots = vm.Snapshot.CurrentSnapshot, vm.Snapshot.RootSnapshotList
	}
	return t, nil
}

func (t *template) equipped(h *types.VirtualHardware) {
	t.devices, t.cpus, t.memoryMiB, t.tpm = h.Device, h.NumCPU, int64(h.MemoryMB), false
	for _, device := range h.Device {
		if _, ok := device.(*types.VirtualTPM); ok {
			t.tpm = true
		}
	}
}

// source resolves what the VM of a machine is cloned from. What comes from a
// content library is kept where to says.
func (d *driver) source(ctx context.Context, m *infrav1.NovaVSphereMachine, g *goal, to *site) (*template, error) {
	if g.template.ContentLibrary.Item != "" {
		return d.image(ctx, m, g, to)
	}
	return d.template(ctx, g)
}

// located is where a name, path or UUID led to. It may lead elsewhere at any
// time, so it is news.
type located struct {
	ref  ref
	read time.Time
}

func (l located) readAt() time.Time { return l.read }

// locate finds the VM that is cloned to get to g. Nothing of it is read.
func (r *resolver) locate(ctx context.Context, g *goal) (ref, error) {
	name, id := g.template.Name, g.template.ID
	switch {
	case strings.HasPrefix(id, "vm-"):
		return ref{Type: "VirtualMachine", Value: id}, nil
	case id != "":
		return r.vmWithUUID(ctx, strings.ToLower(id))
	case name == "":
		return ref{}, failure(infrav1.TemplateNotFoundReason, "neither the machine nor the NovaVSphereCluster names a template: set spec.template")
	}
	found, err := in(ctx, r, g.placement.Datacenter, "template", name, infrav1.TemplateNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (located, error) {
			found, err := f.VirtualMachine(ctx, name)
			at, err := refOf(found, err)
			return located{ref: at, read: time.Now()}, err
		})
	return found.ref, err
}

// templateAt reads the template at a reference that g led to.
func (r *resolver) templateAt(ctx context.Context, g *goal, at ref) (*template, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*template, error) {
		t, err := readTemplate(ctx, c, at)
		if isGone(err) {
			return nil, r.vanished(g, at)
		}
		return t, err
	}, "reference", at.Value)
}

// vanished forgets where g led to, which does not exist any more, and says so.
func (r *resolver) vanished(g *goal, at ref) error {
	r.drop("template", g.placement.Datacenter, g.template.Name)
	r.drop("uuid", strings.ToLower(g.template.ID))
	return failure(infrav1.TemplateNotFoundReason, "the template %s does not exist in vCenter, or the account cannot see it", at.Value)
}

// vmWithUUID resolves a VM by its instance UUID, or else by its BIOS UUID.
func (r *resolver) vmWithUUID(ctx context.Context, id string) (ref, error) {
	found, err := resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (located, error) {
		for _, instance := range []bool{true, false} {
			res, err := methods.FindAllByUuid(ctx, c, &types.FindAllByUuid{
				This: *c.ServiceContent.SearchIndex, Uuid: id, VmSearch: true, InstanceUuid: ptr.To(instance),
			})
			if err != nil {
				return located{}, err
			}
			switch len(res.Returnval) {
			case 0:
				continue
			case 1:
				return located{ref: res.Returnval[0], read: time.Now()}, nil
			}
			return located{}, failure(infrav1.TemplateNotFoundReason, "%d VMs have the BIOS UUID %s: use the template's instance UUID", len(res.Returnval), id)
		}
		return located{}, failure(infrav1.TemplateNotFoundReason, "no template in vCenter has the UUID %s, or the account cannot see it", id)
	}, "uuid", id)
	return found.ref, err
}

// origin is what exactly of a template is cloned.
type origin struct {
	// snapshot is where the clone begins; the template as it is, if nil.
	snapshot *ref
	// linked means that the clone shares the snapshot's disks.
	linked bool
}

// origin decides how t is cloned.
func (t *template) origin(mode infrav1.CloneMode, snapshot string, d *infrav1.NovaVSphereDisks) (origin, error) {
	var from *ref
	if snapshot != "" {
		found := findSnapshots(t.snapshots, snapshot)
		switch len(found) {
		case 0:
			return origin{}, failure(infrav1.TemplateNotFoundReason, "the template has no snapshot %q", snapshot)
		case 1:
			from = &found[0]
		default:
			return origin{}, failure(infrav1.TemplateNotFoundReason, "the template has %d snapshots called %q: give the path of one", len(found), snapshot)
		}
	}
	if mode == "" || mode == infrav1.CloneFull {
		return origin{snapshot: from}, nil
	}
	base := from
	if base == nil {
		base = t.current
	}
	var why string
	switch {
	case base == nil:
		why = "the template has no snapshot"
	case grows(t, d):
		why = "a disk that is shared cannot grow"
	default:
		return origin{snapshot: base, linked: true}, nil
	}
	if mode == infrav1.CloneLinked {
		return origin{}, failure(infrav1.InvalidSpecReason, "A linked clone is not possible because %s: set cloneMode to LinkedOrFull to have the disks copied then", why)
	}
	return origin{snapshot: from}, nil
}

// findSnapshots returns the snapshots that have a name, or the one that a path
// leads to.
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

// at is the template as it was when a snapshot of it was taken.
func (r *resolver) at(ctx context.Context, t *template, snapshot ref) (*template, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*template, error) {
		var s mo.VirtualMachineSnapshot
		if err := object.NewCommon(c, snapshot).Properties(ctx, snapshot, []string{"config.hardware"}, &s); err != nil {
			return nil, err
		}
		then := *t
		then.equipped(&s.Config.Hardware)
		return &then, nil
	}, "snapshot", t.ref.Value, snapshot.Value)
}
