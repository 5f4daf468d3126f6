package spec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// DisksKey is the setting of a clone that lists the slots of the disks with
// which it was created.
const DisksKey = "nova.disks"

// LayoutProperties are read before a VM is destroyed.
var LayoutProperties = []string{
	"config.hardware.device", "config.files.vmPathName", "config.extraConfig[\"" + DisksKey + "\"]",
	"runtime.consolidationNeeded", "snapshot",
}

// Layout has the devices that are attached to a VM that is to be deleted.
type Layout struct {
	Directory string
	devices   []types.BaseVirtualDevice
	// createdSlots are the slots of the disks with which the VM was created; nil
	// if the VM does not have that setting.
	createdSlots map[string]bool
	// Snapshots are the devices of its snapshots.
	Snapshots [][]types.BaseVirtualDevice
	// unconsolidated means that disks have parts of removed snapshots.
	unconsolidated bool
}

// RemovalStep is the next step of the deletion of a VM.
type RemovalStep int

const (
	// StepDestroy destroys the VM with its disks.
	StepDestroy RemovalStep = iota
	// StepDropSnapshots removes the snapshots of the VM.
	StepDropSnapshots
	// StepConsolidate merges the files that removed snapshots left.
	StepConsolidate
	// StepDetach detaches the disks that the VM does not own.
	StepDetach
)

// NewLayout builds a layout from properties. seen reports whether these were
// complete.
func NewLayout(content []types.ObjectContent) (l *Layout, snapshots []types.ManagedObjectReference, seen bool) {
	l = &Layout{}
	tree := types.VirtualMachineSnapshotInfo{}
	for _, o := range content {
		if isHidden(o.MissingSet) {
			return l, nil, false
		}
		for _, p := range o.PropSet {
			switch p.Name {
			case "config.hardware.device":
				list, ok := p.Val.(types.ArrayOfVirtualDevice)
				l.devices, seen = list.VirtualDevice, ok
			case "config.files.vmPathName":
				file, _ := p.Val.(string)
				l.Directory = folderOf(file)
			case "runtime.consolidationNeeded":
				l.unconsolidated, _ = p.Val.(bool)
			case "snapshot":
				tree, _ = p.Val.(types.VirtualMachineSnapshotInfo)
			default:
				l.createdSlots = parseSlots(SettingText(p.Val))
			}
		}
	}
	return l, snapshotsIn(tree.RootSnapshotList), seen
}

// isHidden reports whether the account has no permission to read a requested
// property. A setting that does not exist is not hidden.
func isHidden(missing []types.MissingProperty) bool {
	return slices.ContainsFunc(missing, func(m types.MissingProperty) bool {
		_, refused := m.Fault.Fault.(*types.NoPermission)
		return refused
	})
}

func snapshotsIn(trees []types.VirtualMachineSnapshotTree) (refs []types.ManagedObjectReference) {
	for _, tree := range trees {
		refs = append(refs, tree.Snapshot)
		refs = append(refs, snapshotsIn(tree.ChildSnapshotList)...)
	}
	return refs
}

// NextStep returns the step that is needed before the VM can be destroyed, if
// any.
//
// A disk that a snapshot has too cannot be detached, and vCenter destroys the
// disks of snapshots with the VM. So snapshots are removed first; that does
// not change attached disks. A disk that only a snapshot has would be
// destroyed with it.
func (l *Layout) NextStep() (RemovalStep, error) {
	foreign := l.foreign(l.devices)
	attached := map[string]bool{}
	for _, disk := range foreign {
		attached[identity(disk)] = true
	}
	inSnapshots := false
	for _, devices := range l.Snapshots {
		for _, disk := range l.foreign(devices) {
			inSnapshots = true
			if !attached[identity(disk)] {
				return StepDestroy, hypervisor.Failure(infrav1.DisksInSnapshotReason,
					"a snapshot of the VM has a disk (%s) that is neither the machine's own nor attached any more, and would be destroyed with the VM: remove the disk from the VM's snapshots, or the snapshots", FileOf(disk))
			}
		}
	}
	switch {
	case len(foreign) == 0 && !inSnapshots:
		return StepDestroy, nil
	case len(l.Snapshots) > 0:
		return StepDropSnapshots, nil
	case l.unconsolidated:
		return StepConsolidate, nil
	default:
		return StepDetach, nil
	}
}

// Message describes a step in messages.
func (l *Layout) Message(step RemovalStep) string {
	n := len(l.foreign(l.devices))
	switch step {
	case StepDropSnapshots:
		return "Removing the VM's snapshots, so that the disks that are not its own can be kept"
	case StepConsolidate:
		return "Consolidating the VM's disks, so that those that are not its own can be kept"
	default:
		return fmt.Sprintf("Detaching %d disk(s) that are not the machine's own; they are kept", n)
	}
}

// DetachSpec detaches the disks that are not the VM's own, and keeps their
// files.
func (l *Layout) DetachSpec() types.VirtualMachineConfigSpec {
	var spec types.VirtualMachineConfigSpec
	for _, disk := range l.foreign(l.devices) {
		spec.DeviceChange = append(spec.DeviceChange, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: disk,
		})
	}
	return spec
}

// foreign returns the disks among devices that are not the machine's own. It
// keeps a disk in case of doubt: a disk is the machine's own if it is in a
// slot with which the VM was created and is not a first-class disk. A VM
// without the list of slots owns the disks in its own directory.
func (l *Layout) foreign(devices []types.BaseVirtualDevice) []*types.VirtualDisk {
	var out []*types.VirtualDisk
	slots := slotsOf(devices)
	for _, device := range devices {
		disk, ok := device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		own := folderOf(FileOf(disk)) == l.Directory
		if l.createdSlots != nil {
			// Storage vMotion may have moved the disk; its slot does not change.
			own = l.createdSlots[slots[disk.Key]]
		}
		if !own || disk.VDiskId != nil || isShared(disk) {
			out = append(out, disk)
		}
	}
	return out
}

// isShared reports whether other VMs may use the disk too.
func isShared(disk *types.VirtualDisk) bool {
	b, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	return ok && b.Sharing != "" && b.Sharing != string(types.VirtualDiskSharingSharingNone)
}

// identity identifies a disk across snapshots, which give a disk another file.
func identity(disk *types.VirtualDisk) string {
	if disk.VDiskId != nil {
		return disk.VDiskId.Id
	}
	return rootFile(disk.Backing)
}

// rootFile returns the first file in the snapshot chain of a disk.
func rootFile(backing types.BaseVirtualDeviceBackingInfo) string {
	if b, ok := backing.(*types.VirtualDiskFlatVer2BackingInfo); ok && b.Parent != nil {
		return rootFile(b.Parent)
	}
	if b, ok := backing.(*types.VirtualDiskSeSparseBackingInfo); ok && b.Parent != nil {
		return rootFile(b.Parent)
	}
	if b, ok := backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
		return b.GetVirtualDeviceFileBackingInfo().FileName
	}
	return ""
}

// FileOf returns the file of a disk, empty if its backing has none.
func FileOf(disk *types.VirtualDisk) string {
	if b, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
		return b.GetVirtualDeviceFileBackingInfo().FileName
	}
	return ""
}

// folderOf returns the directory of a file on a datastore; empty if it has
// none.
func folderOf(file string) string {
	var p object.DatastorePath
	if !p.FromString(file) || path.Dir(p.Path) == "." {
		return ""
	}
	return p.Datastore + "/" + path.Dir(p.Path)
}

// diskSlots lists the slots of the disks among devices, for disksKey.
func diskSlots(devices []types.BaseVirtualDevice) string {
	slots := slotsOf(devices)
	names := make([]string, 0, len(slots))
	for _, slot := range slots {
		names = append(names, slot)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func parseSlots(slotList string) map[string]bool {
	if slotList == "" {
		return nil
	}
	slots := map[string]bool{}
	for slot := range strings.SplitSeq(slotList, ",") {
		slots[strings.TrimSpace(slot)] = true
	}
	return slots
}

// slotsOf returns the slots of the disks among devices by their keys: the kind
// of the controller, its bus and the unit, such as scsi0:1. Unlike keys, slots
// are known before vCenter has created a device.
func slotsOf(devices []types.BaseVirtualDevice) map[int32]string {
	buses := map[int32]string{}
	for _, device := range devices {
		if c, ok := device.(types.BaseVirtualController); ok {
			buses[device.GetVirtualDevice().Key] = fmt.Sprintf("%s%d", busOf(device), c.GetVirtualController().BusNumber)
		}
	}
	slots := map[int32]string{}
	for _, device := range devices {
		disk, ok := device.(*types.VirtualDisk)
		if !ok || disk.UnitNumber == nil {
			continue
		}
		if bus := buses[disk.ControllerKey]; bus != "" {
			slots[disk.Key] = fmt.Sprintf("%s:%d", bus, *disk.UnitNumber)
		}
	}
	return slots
}

func busOf(controller types.BaseVirtualDevice) string {
	switch controller.(type) {
	case types.BaseVirtualSCSIController:
		return "scsi"
	case types.BaseVirtualSATAController:
		return "sata"
	case *types.VirtualNVMEController:
		return "nvme"
	case *types.VirtualIDEController:
		return "ide"
	default:
		return "bus"
	}
}

// SettingText returns the text of a setting, in any of the types that vCenter
// sends.
func SettingText(value any) string {
	switch v := value.(type) {
	case types.OptionValue:
		return SettingText(v.Value)
	case *types.OptionValue:
		return SettingText(v.Value)
	case string:
		return v
	}
	return ""
}
