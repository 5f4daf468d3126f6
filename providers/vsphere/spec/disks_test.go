package spec

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// twoDisks is a template with disks of 20 and 5 GiB on one controller, and a
// CD-ROM drive on another.
func twoDisks() *Template {
	disk := func(key, unit int32, gib int64) *types.VirtualDisk {
		return &types.VirtualDisk{
			VirtualDevice: types.VirtualDevice{
				Key: key, ControllerKey: 1000, UnitNumber: ptr.To(unit), DeviceInfo: &types.Description{Label: fmt.Sprintf("Hard disk %d", unit+1)},
				Backing: &types.VirtualDiskFlatVer2BackingInfo{Parent: &types.VirtualDiskFlatVer2BackingInfo{}},
			},
			CapacityInKB: gib << 20, CapacityInBytes: gib << 30,
		}
	}
	controller := newController(vspherev1.ControllerParaVirtual, 0, 1000)
	return &Template{devices: []types.BaseVirtualDevice{
		&types.VirtualIDEController{VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: 200}}},
		controller,
		disk(2000, 0, 20), disk(2001, 1, 5),
		&types.VirtualCdrom{VirtualDevice: types.VirtualDevice{Key: 3000, ControllerKey: 200, UnitNumber: ptr.To[int32](0)}},
	}}
}

func data(name string, c vspherev1.NovaVSphereController) vspherev1.NovaVSphereDataDisk {
	return vspherev1.NovaVSphereDataDisk{Name: name, SizeGiB: 1, Controller: c}
}

func TestDisks(t *testing.T) {
	many := make([]vspherev1.NovaVSphereDataDisk, 14)
	for i := range many {
		many[i] = data(string(rune('a'+i)), vspherev1.NovaVSphereController{})
	}
	tests := []struct {
		name    string
		disks   vspherev1.NovaVSphereDisks
		mark    string
		refused string
	}{
		{"as the template", vspherev1.NovaVSphereDisks{}, "scsi0:0,scsi0:1", ""},
		{"grown", vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 30}, Template: []vspherev1.NovaVSphereTemplateDisk{{Name: "Hard disk 2", SizeGiB: 6}}}, "scsi0:0,scsi0:1", ""},
		{"of the same size", vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 20}}, "scsi0:0,scsi0:1", ""},
		{"smaller", vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 10}}, "", "10 GiB are requested for disk 1 of the template, which has 20 GiB: a disk can only grow"},
		{"one too many", vspherev1.NovaVSphereDisks{Template: []vspherev1.NovaVSphereTemplateDisk{{Name: "Hard disk 3", SizeGiB: 9}}}, "", `disks.template: the template has no disk "Hard disk 3" beside its boot disk; it has ["Hard disk 2"]`},
		{
			"anywhere",
			vspherev1.NovaVSphereDisks{Data: []vspherev1.NovaVSphereDataDisk{data("a", vspherev1.NovaVSphereController{})}},
			"scsi0:0,scsi0:1,scsi0:2", "",
		},
		{"more than one controller has room for", vspherev1.NovaVSphereDisks{Data: many},
			"scsi0:0,scsi0:1,scsi0:10,scsi0:11,scsi0:12,scsi0:13,scsi0:14,scsi0:15,scsi0:2,scsi0:3,scsi0:4,scsi0:5,scsi0:6,scsi0:8,scsi0:9,scsi1:0", ""},
		{
			"in places of their own",
			vspherev1.NovaVSphereDisks{Data: []vspherev1.NovaVSphereDataDisk{
				data("any", vspherev1.NovaVSphereController{}),
				data("nvme", vspherev1.NovaVSphereController{Type: vspherev1.ControllerNVMe}),
				data("sata", vspherev1.NovaVSphereController{Type: vspherev1.ControllerSATA, Bus: ptr.To[int32](1)}),
				data("two", vspherev1.NovaVSphereController{Bus: ptr.To[int32](0), Unit: ptr.To[int32](2)}),
				data("far", vspherev1.NovaVSphereController{Bus: ptr.To[int32](0), Unit: ptr.To[int32](40)}),
			}},
			"nvme0:0,sata1:0,scsi0:0,scsi0:1,scsi0:2,scsi0:3,scsi0:40", "",
		},
		{
			"where one is",
			vspherev1.NovaVSphereDisks{Data: []vspherev1.NovaVSphereDataDisk{data("a", vspherev1.NovaVSphereController{Bus: ptr.To[int32](0), Unit: ptr.To[int32](1)})}},
			"", `the data disk "a" requests unit 1 of bus 0, which is in use or does not exist`,
		},
		{
			"where the controller is",
			vspherev1.NovaVSphereDisks{Data: []vspherev1.NovaVSphereDataDisk{data("a", vspherev1.NovaVSphereController{Bus: ptr.To[int32](0), Unit: ptr.To[int32](7)})}},
			"", `the data disk "a" requests unit 7 of bus 0, which is in use or does not exist`,
		},
		{
			"on a controller of another kind",
			vspherev1.NovaVSphereDisks{Data: []vspherev1.NovaVSphereDataDisk{data("a", vspherev1.NovaVSphereController{Type: vspherev1.ControllerLSILogic, Bus: ptr.To[int32](0)})}},
			"", `the data disk "a" requests a controller LSILogic at bus 0, where the template has a controller of the type ParaVirtual`,
		},
		{
			"on the next controller of another kind",
			vspherev1.NovaVSphereDisks{Data: []vspherev1.NovaVSphereDataDisk{data("a", vspherev1.NovaVSphereController{Type: vspherev1.ControllerLSILogicSAS})}},
			"scsi0:0,scsi0:1,scsi1:0", "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			_, slotList, err := disks(twoDisks(), &tt.disks, make([]DiskPlacement, len(tt.disks.Data)))
			if tt.refused != "" {
				g.Expect(err).To(MatchError(tt.refused))
				g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.InvalidSpecReason))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(slotList).To(Equal(tt.mark))
		})
	}
}

func TestGrownDisk(t *testing.T) {
	g := NewWithT(t)
	source := twoDisks()
	changes, _, err := disks(source, &vspherev1.NovaVSphereDisks{Template: []vspherev1.NovaVSphereTemplateDisk{{Name: "Hard disk 2", SizeGiB: 6}}}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changes).To(HaveLen(1))
	change := changes[0].GetVirtualDeviceConfigSpec()
	g.Expect(change.Operation).To(Equal(types.VirtualDeviceConfigSpecOperationEdit))
	disk := change.Device.(*types.VirtualDisk)
	g.Expect(disk.Key).To(BeEquivalentTo(2001))
	g.Expect(disk.CapacityInKB).To(BeEquivalentTo(6 << 20))
	g.Expect(disk.CapacityInBytes).To(BeEquivalentTo(6 << 30))
	g.Expect(disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Parent).To(BeNil(), "a copy has no snapshots")
	g.Expect(source.devices[3].(*types.VirtualDisk).CapacityInKB).To(BeEquivalentTo(5<<20), "the template's is others' too")
}

func TestDataDisk(t *testing.T) {
	on := types.ManagedObjectReference{Type: "Datastore", Value: "datastore-7"}
	tests := []struct {
		provisioning vspherev1.NovaVSphereProvisioning
		thin, eager  *bool
	}{
		{"", nil, nil},
		{vspherev1.ProvisioningThin, ptr.To(true), nil},
		{vspherev1.ProvisioningThick, ptr.To(false), ptr.To(false)},
		{vspherev1.ProvisioningEagerZeroed, ptr.To(false), ptr.To(true)},
	}
	for _, tt := range tests {
		t.Run(string(tt.provisioning), func(t *testing.T) {
			g := NewWithT(t)
			changes, _, err := disks(twoDisks(), &vspherev1.NovaVSphereDisks{Data: []vspherev1.NovaVSphereDataDisk{{
				Name: "a", SizeGiB: 3, Provisioning: tt.provisioning, Controller: vspherev1.NovaVSphereController{Type: vspherev1.ControllerNVMe},
			}}}, []DiskPlacement{{Datastore: &on, Name: "fast", Policy: "gold"}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changes).To(HaveLen(2), "a controller and a disk")
			controller := changes[0].GetVirtualDeviceConfigSpec().Device.(*types.VirtualNVMEController)
			change := changes[1].GetVirtualDeviceConfigSpec()
			g.Expect(change.FileOperation).To(Equal(types.VirtualDeviceConfigSpecFileOperationCreate))
			g.Expect(change.Profile).To(ConsistOf(&types.VirtualMachineDefinedProfileSpec{ProfileId: "gold"}))
			disk := change.Device.(*types.VirtualDisk)
			g.Expect(disk.ControllerKey).To(Equal(controller.Key))
			g.Expect(disk.CapacityInBytes).To(BeEquivalentTo(3 << 30))
			backing := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			g.Expect(backing.FileName).To(Equal("[fast]"))
			g.Expect(backing.Datastore).To(Equal(&on))
			g.Expect(backing.ThinProvisioned).To(Equal(tt.thin))
			g.Expect(backing.EagerlyScrub).To(Equal(tt.eager))
		})
	}
}

func TestRequiredSpace(t *testing.T) {
	got := RequiredSpace(twoDisks(), &vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 30}, Data: []vspherev1.NovaVSphereDataDisk{{SizeGiB: 2}}})
	if want := int64(30+5+2) << 30; got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
