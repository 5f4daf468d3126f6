package vsphere

import (
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	hypervisortest "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// storagePolicy is a storage policy of the simulated vCenter.
const storagePolicy = "vSAN Default Storage Policy"

// finder returns a finder of another user's session for DC0.
func (b *bed) finder() *find.Finder {
	b.t.Helper()
	f := find.NewFinder(b.admin().Client)
	dc, err := f.Datacenter(b.ctx(), "DC0")
	b.Expect(err).NotTo(HaveOccurred())
	return f.SetDatacenter(dc)
}

// addPod creates a datastore cluster with one datastore.
func (b *bed) addPod(name, datastore string) {
	b.t.Helper()
	f := b.finder()
	folder, err := f.Folder(b.ctx(), "/DC0/datastore")
	b.Expect(err).NotTo(HaveOccurred())
	pod, err := folder.CreateStoragePod(b.ctx(), name)
	b.Expect(err).NotTo(HaveOccurred())
	ds, err := f.Datastore(b.ctx(), datastore)
	b.Expect(err).NotTo(HaveOccurred())
	b.wait(pod.MoveInto(b.ctx(), []types.ManagedObjectReference{ds.Reference()}))
	b.wait(object.NewStorageResourceManager(b.admin().Client).ConfigureStorageDrsForPod(b.ctx(), pod, types.StorageDrsConfigSpec{
		PodConfigSpec: &types.StorageDrsPodConfigSpec{Enabled: types.NewBool(true)},
	}, true))
}

// addHostGroup creates a DRS group of the first host, and returns the host.
func (b *bed) addHostGroup(name string) types.ManagedObjectReference {
	b.t.Helper()
	return b.addHostGroupOf(name, 1)[0].Reference()
}

// addHostGroupOf creates a DRS group of a number of hosts, and returns them.
func (b *bed) addHostGroupOf(name string, count int) []*object.HostSystem {
	b.t.Helper()
	cluster, err := b.finder().ClusterComputeResource(b.ctx(), "DC0_C0")
	b.Expect(err).NotTo(HaveOccurred())
	hosts, err := cluster.Hosts(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	group := &types.ClusterHostGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: name}}
	for _, host := range hosts[:count] {
		group.Host = append(group.Host, host.Reference())
	}
	b.wait(cluster.Reconfigure(b.ctx(), &types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}, Info: group,
	}}}, true))
	return hosts[:count]
}

// addSnapshot creates a snapshot of a template.
func (b *bed) addSnapshot(template, name string) {
	b.t.Helper()
	b.wait(b.vm(template).CreateSnapshot(b.ctx(), name, "", false, false))
}

// properties reads the properties of a VM.
func (b *bed) properties(name string) mo.VirtualMachine {
	b.t.Helper()
	var vm mo.VirtualMachine
	handle := b.vm(name)
	b.Expect(handle.Properties(b.ctx(), handle.Reference(), []string{"config", "runtime", "datastore", "parent", "resourcePool"}, &vm)).To(Succeed())
	return vm
}

func disksOf(vm *mo.VirtualMachine) (out []*types.VirtualDisk) {
	for _, device := range vm.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			out = append(out, disk)
		}
	}
	return out
}

func optionsOf(vm *mo.VirtualMachine) map[string]string {
	out := map[string]string{}
	for _, option := range vm.Config.ExtraConfig {
		out[option.GetOptionValue().Key], _ = option.GetOptionValue().Value.(string)
	}
	return out
}

// A machine with every option still costs one clone, one recommendation and
// one entry in the list view.
func TestCreateWithEverything(t *testing.T) {
	b := newBed(t)
	b.addPod("pod", "LocalDS_1")
	host := b.addHostGroup("rack")
	b.addSnapshot(vcenter.DefaultTemplate, "base")
	b.cluster.Spec.FailureDomains = []vspherev1.NovaVSphereFailureDomain{{
		FailureDomain: infrav1.FailureDomain{Name: "zone-a", Networks: []infrav1.FailureDomainNetwork{{Interface: ptr.To[int32](1), Network: "DC0_DVPG0"}}},
		Placement:     vspherev1.NovaVSpherePlacement{ComputeCluster: "DC0_C0", HostGroup: "rack", DatastoreCluster: "pod"},
	}}
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	everything := func(name string) *vspherev1.NovaVSphereMachine {
		m := b.machine(name)
		m.Spec.Placement = vspherev1.NovaVSpherePlacement{Folder: "nova/tenants/one", CreateFolder: ptr.To(true), StoragePolicy: storagePolicy}
		m.Spec.CloneMode = infrav1.CloneLinkedOrFull
		m.Spec.Hardware = vspherev1.NovaVSphereHardware{
			CPUs: 8, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 4}, MemoryMiB: 8192, Firmware: infrav1.FirmwareEFI, SecureBoot: ptr.To(true), NestedVirtualization: ptr.To(true),
			CPUReservationMHz: ptr.To[int64](500), CPULimitMHz: 2000, CPUShares: vspherev1.NovaVSphereShares{Level: vspherev1.SharesHigh},
			MemoryReservationMiB: ptr.To[int64](1024),
			ExtraConfig:          []vspherev1.NovaVSphereExtraConfig{{Name: "sched.swap.vmxSwapEnabled", Value: "FALSE"}},
		}
		m.Spec.Disks = vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 40}, Data: []vspherev1.NovaVSphereDataDisk{
			{Name: "etcd", SizeGiB: 10, Provisioning: vspherev1.ProvisioningEagerZeroed, Controller: vspherev1.NovaVSphereController{Type: vspherev1.ControllerNVMe}},
			{Name: "logs", SizeGiB: 5, Provisioning: vspherev1.ProvisioningThin, Datastore: "LocalDS_0"},
		}}
		m.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{
			{Network: "/DC0/network/DC0_DVPG0", MTU: 1400, InterfaceAddressing: infrav1.InterfaceAddressing{
				AddressesFromPools: []ipamv1.IPPoolReference{{Name: "pool"}}, Nameservers: []string{"192.0.2.53"},
			}},
			{Network: "VM Network", Type: vspherev1.InterfaceE1000e, InterfaceAddressing: infrav1.InterfaceAddressing{MACAddress: "02:00:00:00:00:77"}},
		}
		return m
	}
	l := createOptions
	l.Zone = "zone-a"
	l.Interfaces = [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("192.0.2.10/24"), Gateway: netip.MustParseAddr("192.0.2.1")}}}
	first := everything("first") // resolves the names for all others
	b.Expect(b.connect(first).Create(b.ctx(), first, l)).To(Succeed())
	b.waitForState(first, hypervisor.Running)

	b.vc.ResetRequests()
	m := everything("m")
	b.Expect(b.connect(m).Create(b.ctx(), m, l)).To(Succeed())
	vm := b.waitForState(m, hypervisor.Running)
	b.Expect(b.vc.Requests()).To(Equal(map[string]int{"CloneVM_Task": 1, "RecommendDatastores": 1, "ModifyListView": 1}))
	b.Expect(vm.Zone).To(Equal("zone-a"))

	is := b.properties("m")
	b.Expect(is.Config.Hardware.NumCPU).To(BeEquivalentTo(8))
	b.Expect(is.Config.Hardware.NumCoresPerSocket).To(BeEquivalentTo(ptr.To[int32](4)))
	b.Expect(is.Config.Hardware.MemoryMB).To(BeEquivalentTo(8192))
	b.Expect(is.Config.Firmware).To(Equal("efi"))
	b.Expect(is.Config.BootOptions.EfiSecureBootEnabled).To(HaveValue(BeTrue()))
	b.Expect(is.Config.NestedHVEnabled).To(HaveValue(BeTrue()))
	b.Expect(is.Config.CpuAllocation.Reservation).To(HaveValue(BeEquivalentTo(500)))
	b.Expect(is.Config.CpuAllocation.Limit).To(HaveValue(BeEquivalentTo(2000)))
	b.Expect(is.Config.MemoryAllocation.Reservation).To(HaveValue(BeEquivalentTo(1024)))
	b.Expect(is.Runtime.Host).To(Equal(&host))
	b.Expect(is.Config.Annotation).To(HaveSuffix("\nFailure domain: zone-a"))
	options := optionsOf(&is)
	b.Expect(options).To(HaveKeyWithValue("sched.swap.vmxSwapEnabled", "FALSE"))
	b.Expect(options).To(HaveKeyWithValue("nova.failureDomain", "zone-a"))
	b.Expect(options).To(HaveKeyWithValue("nova.hostGroup", "rack"))
	b.Expect(options).To(HaveKeyWithValue("nova.disks", "nvme0:0,scsi0:0,scsi0:1"))

	disks := disksOf(&is)
	b.Expect(disks).To(HaveLen(3))
	b.Expect(disks[0].CapacityInBytes).To(BeEquivalentTo(40 << 30))
	b.Expect(disks[0].Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName).To(HavePrefix("[LocalDS_1] "), "Storage DRS has its way")
	sizes := map[int64]string{}
	for _, disk := range disks[1:] {
		sizes[disk.CapacityInBytes>>30] = disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName
	}
	b.Expect(sizes).To(HaveKeyWithValue(BeEquivalentTo(10), HavePrefix("[LocalDS_1] ")))
	b.Expect(sizes).To(HaveKeyWithValue(BeEquivalentTo(5), HavePrefix("[LocalDS_0] ")))

	found := b.vmNamed("m")
	b.Expect(found[0].NICs).To(HaveLen(2))
	id, err := kit.MachineUUID(b.cluster.Annotations[infrav1.ClusterIDAnnotation], hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(found[0].NICs[0].MAC).To(Equal(spec.MACAddress(id, 0)))
	b.Expect(found[0].NICs[1].MAC).To(Equal("02:00:00:00:00:77"))
	b.Expect(found[0].NICs[1].Network).To(Equal("DC0_DVPG0"), "the failure domain's")

	var parent mo.Folder
	b.Expect(b.vm("m").Properties(b.ctx(), *is.Parent, []string{"name"}, &parent)).To(Succeed())
	b.Expect(parent.Name).To(Equal("one"))

	b.connector.Close()
	b.connector = b.newConnector()
	b.Expect(b.waitForState(m, hypervisor.Running).Zone).To(Equal("zone-a"), "another manager finds it on the VM")
}

func TestCreateFromSources(t *testing.T) {
	b := newBed(t)
	b.addSnapshot(vcenter.DefaultTemplate, "base")
	var template mo.VirtualMachine
	handle := b.vm(vcenter.DefaultTemplate)
	b.Expect(handle.Properties(b.ctx(), handle.Reference(), []string{"config"}, &template)).To(Succeed())
	tests := []struct {
		name   string
		change func(*vspherev1.NovaVSphereMachineSpec)
	}{
		{"path", func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.Name = "/DC0/vm/" + vcenter.DefaultTemplate }},
		{"reference", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Template = vspherev1.NovaVSphereTemplate{ID: handle.Reference().Value}
		}},
		{"bios", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Template = vspherev1.NovaVSphereTemplate{ID: strings.ToUpper(template.Config.Uuid)}
		}},
		{"instance", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Template = vspherev1.NovaVSphereTemplate{ID: template.Config.InstanceUuid}
		}},
		{"snapshot", func(s *vspherev1.NovaVSphereMachineSpec) { s.Template.Snapshot = "base" }},
		{"linked", func(s *vspherev1.NovaVSphereMachineSpec) { s.CloneMode = infrav1.CloneLinked }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			m := b.machine("from-" + tt.name)
			tt.change(&m.Spec)
			g.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
			b.waitForState(m, hypervisor.Running)
			is := b.properties(m.Name)
			backing := disksOf(&is)[0].Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			g.Expect(backing.Parent != nil).To(Equal(tt.name == "linked"))
		})
	}
}

func TestCreateRefusals(t *testing.T) {
	b := newBed(t)
	b.addPod("full", "LocalDS_1")
	b.Expect(b.vc.SetDatastoreFull("LocalDS_1", true)).To(Succeed())
	b.addGroups("rack", "rack-vms")
	b.addGroups("row", "loose")
	const nothing = "6ba7b810-9dad-51d1-80b4-00c04fd430c8"
	tests := []struct {
		name   string
		change func(*vspherev1.NovaVSphereMachineSpec)
		zone   string
		reason string
		says   string
	}{
		{"no such UUID", func(s *vspherev1.NovaVSphereMachineSpec) { s.Template = vspherev1.NovaVSphereTemplate{ID: nothing} }, "",
			infrav1.TemplateNotFoundReason, "no template in vCenter has the UUID " + nothing + ", or the account cannot see it"},
		{"no such reference", func(s *vspherev1.NovaVSphereMachineSpec) { s.Template = vspherev1.NovaVSphereTemplate{ID: "vm-99999"} }, "",
			infrav1.TemplateNotFoundReason, "the template vm-99999 does not exist in vCenter, or the account cannot see it"},
		{"no such library", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Template = vspherev1.NovaVSphereTemplate{ContentLibrary: vspherev1.NovaVSphereLibraryItem{Library: "none", Item: "debian"}}
		}, "", infrav1.TemplateNotFoundReason, `0 content libraries are called "none", not one, or the account cannot see it`},
		{"no snapshot", func(s *vspherev1.NovaVSphereMachineSpec) { s.CloneMode = infrav1.CloneLinked }, "",
			infrav1.InvalidSpecReason, "A linked clone is not possible because the template has no snapshot"},
		{"a smaller disk", func(s *vspherev1.NovaVSphereMachineSpec) { s.Disks.Boot.SizeGiB = 1 }, "",
			infrav1.InvalidSpecReason, "1 GiB are requested for disk 1 of the template, which has 20 GiB: a disk can only grow"},
		{"no such policy", func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.StoragePolicy = "none" }, "",
			infrav1.PlacementNotFoundReason, `the storage policy "none" does not exist in vCenter, or the account cannot see it`},
		{"no such datastore cluster", func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.DatastoreCluster = "none" }, "",
			infrav1.PlacementNotFoundReason, `placement.datastoreCluster "none" does not exist in vCenter, or the account cannot see it`},
		{"a full datastore cluster", func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.DatastoreCluster = "full" }, "",
			infrav1.InsufficientResourcesReason, "Storage DRS has no datastore to recommend: Insufficient space on the datastores of the datastore cluster"},
		{"no such compute cluster", func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.ComputeCluster = "none" }, "",
			infrav1.PlacementNotFoundReason, `placement.computeCluster "none" does not exist in vCenter, or the account cannot see it`},
		{"no such pool there", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Placement.ComputeCluster, s.Placement.ResourcePool = "DC0_C0", "none"
		}, "", infrav1.PlacementNotFoundReason, `placement.resourcePool "none" does not exist in placement.computeCluster "DC0_C0", or the account cannot see it`},
		{"no such VM group", func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.HostGroup, s.Placement.VMGroup = "rack", "none" }, "",
			infrav1.PlacementNotFoundReason, `placement.vmGroup "none" does not exist in the compute cluster, or the account cannot see it`},
		{"no rule for the VM group", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Placement.HostGroup, s.Placement.VMGroup = "rack", "loose"
		}, "",
			infrav1.PlacementNotFoundReason, `no enabled rule of the compute cluster binds placement.vmGroup "loose" to placement.hostGroup "rack"`},
		{"no such host group", func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.HostGroup = "none" }, "",
			infrav1.PlacementNotFoundReason, `placement.hostGroup "none" does not exist in the compute cluster, or the account cannot see it`},
		{"no such folder", func(s *vspherev1.NovaVSphereMachineSpec) { s.Placement.Folder = "none" }, "",
			infrav1.PlacementNotFoundReason, `placement.folder "none" does not exist in vCenter, or the account cannot see it`},
		{"a folder elsewhere", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Placement.Folder, s.Placement.CreateFolder = "/DC1/vm/none", ptr.To(true)
		}, "", infrav1.InvalidSpecReason, `placement.folder "/DC1/vm/none" is not below /DC0/vm`},
		{"no such failure domain", func(*vspherev1.NovaVSphereMachineSpec) {}, "none",
			infrav1.PlacementNotFoundReason, `the failure domain "none" is not among spec.failureDomains of the NovaVSphereCluster`},
		{"no such network reference", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Network.Interfaces[0].Network = "DistributedVirtualPortgroup:dvportgroup-9999"
		}, "", infrav1.PlacementNotFoundReason, `network "DistributedVirtualPortgroup:dvportgroup-9999" does not exist in vCenter, or the account cannot see it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			m := b.machine("refused")
			tt.change(&m.Spec)
			l := createOptions
			l.Zone = tt.zone
			err := b.connect(m).Create(b.ctx(), m, l)
			g.Expect(err).To(MatchError(ContainSubstring(tt.says)))
			g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(tt.reason))
			b.waitForState(m, hypervisor.Absent)
			g.Expect(b.vmNamed("refused")).To(BeEmpty())
		})
	}
	b.Expect(b.vc.Requests()).NotTo(HaveKey("CloneVM_Task"), "all errors are found before the first request that changes vCenter")
}

// A missing snapshot is found once it exists.
func TestSnapshotTakenLater(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	m.Spec.CloneMode = infrav1.CloneLinked
	err := b.connect(m).Create(b.ctx(), m, createOptions)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.InvalidSpecReason))
	b.Expect(hypervisor.IsTerminal(err)).To(BeFalse(), "a user may create a snapshot later")
	b.addSnapshot(vcenter.DefaultTemplate, "base")
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// VMs that are created together are spread over the datastores that fit a
// policy.
func TestCreateByPolicyAlone(t *testing.T) {
	b := newBed(t)
	b.cluster.Spec.Placement.Datastore = ""
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	on := map[string]int{}
	for _, name := range []string{"a", "b", "c", "d"} {
		m := b.machine(name)
		m.Spec.Placement.StoragePolicy = storagePolicy
		b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
		b.waitForState(m, hypervisor.Running)
		is := b.properties(name)
		file := disksOf(&is)[0].Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName
		on[file[:strings.Index(file, "]")+1]]++
	}
	b.Expect(on).To(Equal(map[string]int{"[LocalDS_0]": 2, "[LocalDS_1]": 2}))
}

// Missing folders are created once, by the first machine.
func TestCreateFolder(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	m.Spec.Placement.Folder, m.Spec.Placement.CreateFolder = "/DC0/vm/nova/a/b", ptr.To(true)
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	folder, err := b.finder().Folder(b.ctx(), "/DC0/vm/nova/a/b")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.properties("m").Parent).To(HaveValue(Equal(folder.Reference())))

	b.connector.Close()
	b.connector = b.newConnector()
	again := b.machine("again")
	again.Spec.Placement = m.Spec.Placement
	b.Expect(b.connect(again).Create(b.ctx(), again, createOptions)).To(Succeed())
	b.waitForState(again, hypervisor.Running)
	b.Expect(b.properties("again").Parent).To(HaveValue(Equal(folder.Reference())))
}

// The hardware version is upgraded before a VM starts for the first time.
func TestUpgradeHardware(t *testing.T) {
	b := newBed(t)
	create := func(name, version string) mo.VirtualMachine {
		m := b.machine(name)
		m.Spec.Hardware.Version = version
		b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
		b.Eventually(func(g Gomega) {
			d := b.connect(m)
			vm, err := d.Observe(b.ctx(), m)
			g.Expect(err).NotTo(HaveOccurred())
			if vm.State == hypervisor.Stopped && vm.OutOfSync != "" {
				g.Expect(hypervisortest.Sync(b.ctx(), d, m, false)).To(Succeed())
			} else if vm.State == hypervisor.Stopped {
				g.Expect(d.Start(b.ctx(), m)).To(Succeed())
			}
			g.Expect(vm.State).To(Equal(hypervisor.Running))
		}).Should(Succeed())
		return b.properties(name)
	}
	b.Expect(create("newer", "vmx-22").Config.Version).To(Equal("vmx-22"))
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("UpgradeVM_Task", 1))
	b.Expect(create("older", "vmx-13").Config.Version).To(Equal("vmx-21"))
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("UpgradeVM_Task", 1))
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("PowerOnVM_Task", 1))
}

// Networks are also found by reference, including opaque networks.
func TestNetworks(t *testing.T) {
	b := newBed(t)
	portgroup, err := b.finder().Network(b.ctx(), "DC0_DVPG0")
	b.Expect(err).NotTo(HaveOccurred())
	m := b.machine("m")
	m.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{{Network: portgroup.Reference().String()}}
	opaque := b.machine("opaque")
	opaque.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{{Network: "DC0_NSX0"}}
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.vmNamed("m")[0].NICs).To(HaveLen(1))
	b.Expect(b.vmNamed("m")[0].NICs[0].Network).To(Equal("DC0_DVPG0"))
	b.Expect(b.vmNamed("m")[0].NICs[0].MAC).To(Equal(spec.MACAddress(b.id(m), 0)), "its guest finds it by that")

	b.Expect(b.connect(opaque).Create(b.ctx(), opaque, createOptions)).To(Succeed())
	b.waitForState(opaque, hypervisor.Running)
	b.Expect(b.vmNamed("opaque")[0].NICs).To(HaveLen(1))
	b.Expect(b.vmNamed("opaque")[0].NICs[0].Network).To(Equal("DC0_NSXPG0"), "the port group of the same logical switch")
}
