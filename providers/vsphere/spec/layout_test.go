package spec

import (
	"slices"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func newDisk(key, controller, unit int32, file string, change ...func(*types.VirtualDisk)) *types.VirtualDisk {
	d := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{
		Key: key, ControllerKey: controller, UnitNumber: ptr.To(unit),
		Backing: &types.VirtualDiskFlatVer2BackingInfo{VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: file}},
	}}
	for _, c := range change {
		c(d)
	}
	return d
}

func firstClass(id string) func(*types.VirtualDisk) {
	return func(d *types.VirtualDisk) { d.VDiskId = &types.ID{Id: id} }
}

func multiWriter(d *types.VirtualDisk) {
	d.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Sharing = string(types.VirtualDiskSharingSharingMultiWriter)
}

// controllers returns the controllers of a typical VM.
func controllers() []types.BaseVirtualDevice {
	scsi := &types.ParaVirtualSCSIController{}
	scsi.Key, scsi.BusNumber = 1000, 0
	nvme := &types.VirtualNVMEController{}
	nvme.Key, nvme.BusNumber = 31000, 1
	sata := &types.VirtualAHCIController{}
	sata.Key = 15000
	return []types.BaseVirtualDevice{scsi, nvme, sata}
}

func TestForeignDisks(t *testing.T) {
	tests := []struct {
		name   string
		reason string
		mark   string
		disks  []*types.VirtualDisk
		want   []int32 // keys of the disks that are kept
	}{
		{"its own", "made with the VM", "scsi0:0", []*types.VirtualDisk{newDisk(2000, 1000, 0, "[a] m/m.vmdk")}, nil},
		{"moved", "Storage vMotion gave it another datastore and directory", "scsi0:0,nvme1:3",
			[]*types.VirtualDisk{newDisk(2000, 1000, 0, "[b] m_1/m.vmdk"), newDisk(32000, 31000, 3, "[c] x/y.vmdk")}, nil},
		{"volume", "a first-class disk belongs to a storage driver", "scsi0:0",
			[]*types.VirtualDisk{newDisk(2000, 1000, 0, "[a] m/m.vmdk"), newDisk(2001, 1000, 1, "[a] fcd/v.vmdk", firstClass("v"))}, []int32{2001}},
		{"volume in a slot of ours", "the slot was free and another user attached a disk there", "scsi0:0,scsi0:1",
			[]*types.VirtualDisk{newDisk(2000, 1000, 0, "[a] m/m.vmdk"), newDisk(2001, 1000, 1, "[a] fcd/v.vmdk", firstClass("v"))}, []int32{2001}},
		{"added by hand", "a person put it into the VM's own directory", "scsi0:0",
			[]*types.VirtualDisk{newDisk(2000, 1000, 0, "[a] m/m.vmdk"), newDisk(2001, 1000, 1, "[a] m/m_1.vmdk")}, []int32{2001}},
		{"shared", "other VMs have it too", "scsi0:0,scsi0:1",
			[]*types.VirtualDisk{newDisk(2000, 1000, 0, "[a] m/m.vmdk"), newDisk(2001, 1000, 1, "[a] m/q.vmdk", multiWriter)}, []int32{2001}},
		{"another VM's", "no mark: only the VM's own directory is its own", "",
			[]*types.VirtualDisk{newDisk(2000, 1000, 0, "[a] m/m.vmdk"), newDisk(2001, 1000, 1, "[a] n/n.vmdk"), newDisk(2002, 1000, 2, "[b] m/m.vmdk")}, []int32{2001, 2002}},
		{"below", "a directory in the VM's is not the VM's", "", []*types.VirtualDisk{newDisk(2000, 1000, 0, "[a] m/sub/m.vmdk")}, []int32{2000}},
		{"no file", "in doubt it is kept", "", []*types.VirtualDisk{newDisk(2000, 1000, 0, "")}, []int32{2000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &Layout{Directory: folderOf("[a] m/m.vmx"), devices: controllers(), createdSlots: parseSlots(tt.mark)}
			for _, d := range tt.disks {
				l.devices = append(l.devices, d)
			}
			var got []int32
			for _, d := range l.foreign(l.devices) {
				got = append(got, d.Key)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: kept %v, want %v", tt.reason, got, tt.want)
			}
		})
	}
}

func TestDiskMark(t *testing.T) {
	devices := append(controllers(), newDisk(2001, 1000, 1, "[a] m/1.vmdk"), newDisk(-1, 31000, 0, "[a]"), newDisk(2000, 1000, 0, "[a] m/0.vmdk"), newDisk(-2, 15000, 4, "[b]"))
	if got, want := diskSlots(devices), "nvme1:0,sata0:4,scsi0:0,scsi0:1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNextStep(t *testing.T) {
	own := newDisk(2000, 1000, 0, "[a] m/m.vmdk")
	volume := newDisk(2001, 1000, 1, "[a] fcd/v.vmdk", firstClass("v"))
	grown := newDisk(2001, 1000, 1, "[a] fcd/v-000001.vmdk", firstClass("v"))
	with := func(disks ...*types.VirtualDisk) []types.BaseVirtualDevice {
		devices := controllers()
		for _, d := range disks {
			devices = append(devices, d)
		}
		return devices
	}
	tests := []struct {
		name   string
		layout Layout
		want   RemovalStep
		refuse bool
	}{
		{"nothing", Layout{devices: with(own)}, StepDestroy, false},
		{"a volume", Layout{devices: with(own, volume)}, StepDetach, false},
		{"snapshots of its own disks", Layout{devices: with(own), Snapshots: [][]types.BaseVirtualDevice{with(own)}}, StepDestroy, false},
		{"snapshots with a volume", Layout{devices: with(own, grown), Snapshots: [][]types.BaseVirtualDevice{with(own, volume)}}, StepDropSnapshots, false},
		{"a volume attached after a snapshot", Layout{devices: with(own, volume), Snapshots: [][]types.BaseVirtualDevice{with(own)}}, StepDropSnapshots, false},
		{"a volume in a snapshot only", Layout{devices: with(own), Snapshots: [][]types.BaseVirtualDevice{with(own, volume)}}, StepDestroy, true},
		{"left to consolidate", Layout{devices: with(own, volume), unconsolidated: true}, StepConsolidate, false},
		{"its own left to consolidate", Layout{devices: with(own), unconsolidated: true}, StepDestroy, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.layout.Directory = folderOf("[a] m/m.vmx")
			got, err := tt.layout.NextStep()
			if got != tt.want || (err != nil) != tt.refuse {
				t.Errorf("got %v, %v", got, err)
			}
			if tt.refuse && hypervisor.ReasonFor(err, "") != infrav1.DisksInSnapshotReason {
				t.Errorf("refused with %v", err)
			}
		})
	}
}

// A property that the account cannot read could contain a disk to keep.
func TestLayoutThatIsHidden(t *testing.T) {
	disks := types.DynamicProperty{Name: "config.hardware.device", Val: types.ArrayOfVirtualDevice{VirtualDevice: controllers()}}
	home := types.DynamicProperty{Name: "config.files.vmPathName", Val: "[a] m/m.vmx"}
	missing := func(fault types.BaseMethodFault) []types.MissingProperty {
		return []types.MissingProperty{{Path: "snapshot", Fault: types.LocalizedMethodFault{Fault: fault}}}
	}
	tests := []struct {
		name    string
		content types.ObjectContent
		want    bool
	}{
		{"all", types.ObjectContent{PropSet: []types.DynamicProperty{disks, home}}, true},
		{"no disks", types.ObjectContent{PropSet: []types.DynamicProperty{home}}, false},
		{"no right to see", types.ObjectContent{PropSet: []types.DynamicProperty{disks, home}, MissingSet: missing(&types.NoPermission{})}, false},
		{"no such setting", types.ObjectContent{PropSet: []types.DynamicProperty{disks, home}, MissingSet: missing(&types.InvalidProperty{})}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, seen := NewLayout([]types.ObjectContent{tt.content}); seen != tt.want {
				t.Errorf("enough is %v, want %v", seen, tt.want)
			}
		})
	}
}
