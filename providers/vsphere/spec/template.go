package spec

import (
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Template is a VM that is cloned.
type Template struct {
	Ref types.ManagedObjectReference
	// devices are its virtual devices.
	devices []types.BaseVirtualDevice
	// cpus and memoryMiB are its size, guest is its guest ID, and version is
	// its hardware version.
	cpus           int32
	memoryMiB      int64
	guest, Version string
	// TPM is set if it has a virtual TPM.
	TPM bool
	// Current is its current snapshot, and snapshots are all snapshots.
	Current   *types.ManagedObjectReference
	snapshots []types.VirtualMachineSnapshotTree
}

// TemplateProperties are the properties that are read of a template.
var TemplateProperties = []string{"config.hardware", "config.guestId", "config.version", "snapshot"}

// NewTemplate returns the template at a reference, from its properties.
func NewTemplate(at types.ManagedObjectReference, vm *mo.VirtualMachine) *Template {
	t := &Template{Ref: at}
	if vm.Config != nil {
		t.guest, t.Version = vm.Config.GuestId, vm.Config.Version
		t.setHardware(&vm.Config.Hardware)
	}
	if vm.Snapshot != nil {
		t.Current, t.snapshots = vm.Snapshot.CurrentSnapshot, vm.Snapshot.RootSnapshotList
	}
	return t
}

// WithHardware returns the template with the hardware of one of its snapshots.
func (t *Template) WithHardware(h *types.VirtualHardware) *Template {
	changed := *t
	changed.setHardware(h)
	return &changed
}

func (t *Template) setHardware(h *types.VirtualHardware) {
	t.devices, t.cpus, t.memoryMiB, t.TPM = h.Device, h.NumCPU, int64(h.MemoryMB), false
	for _, device := range h.Device {
		if _, ok := device.(*types.VirtualTPM); ok {
			t.TPM = true
		}
	}
}

// Source is the state of a template that is cloned.
type Source struct {
	// Snapshot is the snapshot that is cloned; nil for the current state of the
	// template.
	Snapshot *types.ManagedObjectReference
	// linked means that the clone shares the snapshot's disks.
	linked bool
}

// Source decides how t is cloned.
func (t *Template) Source(mode infrav1.CloneMode, snapshot string, d *vspherev1.NovaVSphereDisks) (Source, error) {
	var from *types.ManagedObjectReference
	if snapshot != "" {
		found := findSnapshots(t.snapshots, snapshot)
		switch len(found) {
		case 0:
			return Source{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template has no snapshot %q", snapshot)
		case 1:
			from = &found[0]
		default:
			return Source{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template has %d snapshots called %q: give the path of one", len(found), snapshot)
		}
	}
	if mode == "" || mode == infrav1.CloneFull {
		return Source{Snapshot: from}, nil
	}
	base := from
	if base == nil {
		base = t.Current
	}
	var why string
	switch {
	case base == nil:
		why = "the template has no snapshot"
	case growsDisks(t, d):
		why = "a disk that is shared cannot grow"
	default:
		return Source{Snapshot: base, linked: true}, nil
	}
	if mode == infrav1.CloneLinked {
		return Source{}, hypervisor.Failure(infrav1.InvalidSpecReason, "A linked clone is not possible because %s: set cloneMode to LinkedOrFull to have the disks copied then", why)
	}
	return Source{Snapshot: from}, nil
}

// findSnapshots returns the snapshots with a name, or the snapshot at a path.
func findSnapshots(tree []types.VirtualMachineSnapshotTree, wanted string) []types.ManagedObjectReference {
	var found []types.ManagedObjectReference
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
