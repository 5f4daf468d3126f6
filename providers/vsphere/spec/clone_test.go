package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestEffectiveSpec(t *testing.T) {
	cluster := &vspherev1.NovaVSphereClusterSpec{
		Placement: vspherev1.NovaVSpherePlacement{Datacenter: "dc", ResourcePool: "pool", Datastore: "slow", Folder: "f", CreateFolder: ptr.To(true)},
		FailureDomains: []vspherev1.NovaVSphereFailureDomain{
			{FailureDomain: infrav1.FailureDomain{Name: "empty"}},
			{
				FailureDomain: infrav1.FailureDomain{Name: "full", Networks: []infrav1.FailureDomainNetwork{{Network: "here", Nameservers: []string{"192.0.2.1"}}}},
				Template:      vspherev1.NovaVSphereTemplate{Name: "near"}, Placement: vspherev1.NovaVSpherePlacement{ComputeCluster: "c1", DatastoreCluster: "pod", StoragePolicy: "gold", HostGroup: "row"},
			},
			{
				FailureDomain: infrav1.FailureDomain{Name: "second", Networks: []infrav1.FailureDomainNetwork{{Interface: ptr.To[int32](1), Network: "here"}}},
				Template:      vspherev1.NovaVSphereTemplate{ID: "vm-1"},
			},
		},
	}
	spec := &vspherev1.NovaVSphereMachineSpec{
		Template:  vspherev1.NovaVSphereTemplate{Name: "far"},
		Placement: vspherev1.NovaVSpherePlacement{Datastore: "fast", HostGroup: "rack", VMGroup: "rack-vms"},
		Network:   vspherev1.NovaVSphereNetwork{Interfaces: []vspherev1.NovaVSphereInterface{{Network: "a"}, {Network: "b"}}},
	}
	base := vspherev1.NovaVSpherePlacement{
		Datacenter: "dc", ResourcePool: "pool", Datastore: "fast", HostGroup: "rack", VMGroup: "rack-vms", Folder: "f", CreateFolder: ptr.To(true),
	}
	near := base
	near.ComputeCluster, near.Datastore, near.DatastoreCluster, near.StoragePolicy = "c1", "", "pod", "gold"
	near.HostGroup, near.VMGroup = "row", ""
	tests := []struct {
		zone       string
		placement  vspherev1.NovaVSpherePlacement
		template   vspherev1.NovaVSphereTemplate
		interfaces []vspherev1.NovaVSphereInterface
		says       string
	}{
		{zone: "", placement: base, template: vspherev1.NovaVSphereTemplate{Name: "far"}, interfaces: spec.Network.Interfaces},
		{zone: "empty", placement: base, template: vspherev1.NovaVSphereTemplate{Name: "far"}, interfaces: spec.Network.Interfaces},
		{zone: "full", placement: near, template: vspherev1.NovaVSphereTemplate{Name: "near"}, interfaces: []vspherev1.NovaVSphereInterface{
			{Network: "here", InterfaceAddressing: addressing{Nameservers: []string{"192.0.2.1"}}},
			{Network: "here", InterfaceAddressing: addressing{Nameservers: []string{"192.0.2.1"}}},
		}},
		{zone: "second", placement: base, template: vspherev1.NovaVSphereTemplate{ID: "vm-1"}, interfaces: []vspherev1.NovaVSphereInterface{{Network: "a"}, {Network: "here"}}},
		{zone: "none", says: `the failure domain "none" is not among spec.failureDomains of the NovaVSphereCluster`},
	}
	for _, tt := range tests {
		t.Run(tt.zone, func(t *testing.T) {
			g := NewWithT(t)
			got, err := NewEffective(cluster, spec, tt.zone)
			if tt.says != "" {
				g.Expect(err).To(MatchError(tt.says))
				g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PlacementNotFoundReason))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if diff := cmp.Diff(tt.placement, got.Placement); diff != "" {
				t.Errorf("placement: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tt.interfaces, got.Interfaces); diff != "" {
				t.Errorf("interfaces: -want +got\n%s", diff)
			}
			g.Expect(got.Template).To(Equal(tt.template))
		})
	}
	spec.Network.Interfaces[0].FailureDomains = []vspherev1.NovaVSphereInterfaceFailureDomain{{InterfaceFailureDomain: infrav1.InterfaceFailureDomain{
		Name: "full", AddressesFromPools: []ipamv1.IPPoolReference{{Name: "full"}}, Gateway4: "192.0.2.254", Nameservers: []string{"192.0.2.2"},
	}}}
	spec.Network.Interfaces[0].Gateway4 = "192.0.2.1"
	for zone, want := range map[string]string{"full": "192.0.2.254", "second": "192.0.2.1"} {
		got, err := NewEffective(cluster, spec, zone)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(got.Interfaces[0].Gateway4).To(Equal(want), zone)
		if zone == "full" {
			NewWithT(t).Expect(got.Interfaces[0].Nameservers).To(ConsistOf("192.0.2.2"), "before those of the failure domain")
		}
	}
	NewWithT(t).Expect(spec.Network.Interfaces[0].AddressesFromPools).To(BeEmpty())
	if spec.Network.Interfaces[0].Network != "a" {
		t.Error("the machine's own interfaces were changed")
	}
	spec.Network.Interfaces = spec.Network.Interfaces[:1]
	_, err := NewEffective(cluster, spec, "second")
	byDefault, none := NewEffective(&vspherev1.NovaVSphereClusterSpec{
		ClusterSpec: infrav1.ClusterSpec{Network: "net"}, Template: vspherev1.NovaVSphereTemplate{Name: "default"},
	}, &vspherev1.NovaVSphereMachineSpec{}, "")
	NewWithT(t).Expect(none).NotTo(HaveOccurred())
	NewWithT(t).Expect(byDefault.Template.Name).To(Equal("default"), "template of the cluster")
	NewWithT(t).Expect(byDefault.Interfaces).To(Equal([]vspherev1.NovaVSphereInterface{{Network: "net"}}), "one interface on the network of the cluster")
	NewWithT(t).Expect(err).To(MatchError(`the failure domain "second" has a network for interface 1, which the machine does not have`))
}

func TestCloneSource(t *testing.T) {
	snapshot := func(n string) types.ManagedObjectReference {
		return types.ManagedObjectReference{Type: "VirtualMachineSnapshot", Value: n}
	}
	without := twoDisks()
	with := twoDisks()
	with.Current = ptr.To(snapshot("2"))
	with.snapshots = []types.VirtualMachineSnapshotTree{{
		Snapshot: snapshot("1"), Name: "base",
		ChildSnapshotList: []types.VirtualMachineSnapshotTree{{Snapshot: snapshot("2"), Name: "patched"}, {Snapshot: snapshot("3"), Name: "base"}},
	}}
	larger := vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 30}}
	full := vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 20}}
	tests := []struct {
		name  string
		from  *Template
		mode  infrav1.CloneMode
		of    string
		disks vspherev1.NovaVSphereDisks
		want  Source
		says  string
	}{
		{name: "as it is", from: with},
		{name: "full from a snapshot", from: with, of: "patched", want: Source{Snapshot: ptr.To(snapshot("2"))}},
		{name: "linked", from: with, mode: infrav1.CloneLinked, want: Source{Snapshot: ptr.To(snapshot("2")), linked: true}},
		{name: "linked, the size it has", from: with, mode: infrav1.CloneLinked, disks: full, want: Source{Snapshot: ptr.To(snapshot("2")), linked: true}},
		{name: "linked to a path", from: with, mode: infrav1.CloneLinked, of: "base/base", want: Source{Snapshot: ptr.To(snapshot("3")), linked: true}},
		{name: "ambiguous", from: with, of: "base", says: `the template has 2 snapshots called "base": give the path of one`},
		{name: "unknown", from: with, mode: infrav1.CloneLinkedOrFull, of: "none", says: `the template has no snapshot "none"`},
		{name: "nothing to link", from: without, mode: infrav1.CloneLinked,
			says: "A linked clone is not possible because the template has no snapshot: set cloneMode to LinkedOrFull to have the disks copied then"},
		{name: "growing", from: with, mode: infrav1.CloneLinked, disks: larger,
			says: "A linked clone is not possible because a disk that is shared cannot grow: set cloneMode to LinkedOrFull to have the disks copied then"},
		{name: "nothing to link, copied", from: without, mode: infrav1.CloneLinkedOrFull},
		{name: "growing, copied", from: with, mode: infrav1.CloneLinkedOrFull, disks: larger},
		{name: "growing, copied from the snapshot", from: with, mode: infrav1.CloneLinkedOrFull, of: "patched", disks: larger,
			want: Source{Snapshot: ptr.To(snapshot("2"))}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := tt.from.Source(tt.mode, tt.of, &tt.disks)
			if tt.says != "" {
				g.Expect(err).To(MatchError(tt.says))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tt.want))
		})
	}
}

func TestConfigureHardware(t *testing.T) {
	var spec types.VirtualMachineConfigSpec
	configureHardware(&spec, &vspherev1.NovaVSphereHardware{
		CPUs: 4, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}, MemoryMiB: 4096,
		CPUReservationMHz: ptr.To[int64](0), CPULimitMHz: 1000, CPUShares: vspherev1.NovaVSphereShares{Level: vspherev1.SharesHigh},
		MemoryShares:         vspherev1.NovaVSphereShares{Value: 7},
		NestedVirtualization: ptr.To(true), Firmware: infrav1.FirmwareEFI, SecureBoot: ptr.To(true), TrustedPlatformModule: ptr.To(true),
		PCIDevices: []vspherev1.NovaVSpherePCIDevice{{VendorID: 1, DeviceID: 2, CustomLabel: "l"}}, VGPUProfiles: []string{"p"},
		Encryption:  vspherev1.NovaVSphereEncryption{Migration: vspherev1.EncryptionRequired, FaultTolerance: vspherev1.EncryptionDisabled, KeyID: "k", KeyProvider: "p"},
		ExtraConfig: []vspherev1.NovaVSphereExtraConfig{{Name: "a", Value: "b"}},
	}, &Template{})
	want := types.VirtualMachineConfigSpec{
		NumCPUs: 4, NumCoresPerSocket: ptr.To[int32](2), MemoryMB: 4096,
		CpuAllocation: &types.ResourceAllocationInfo{
			Reservation: ptr.To[int64](0), Limit: ptr.To[int64](1000), Shares: &types.SharesInfo{Level: types.SharesLevelHigh},
		},
		MemoryAllocation: &types.ResourceAllocationInfo{Shares: &types.SharesInfo{Level: types.SharesLevelCustom, Shares: 7}},
		NestedHVEnabled:  ptr.To(true), Firmware: "efi", BootOptions: &types.VirtualMachineBootOptions{EfiSecureBootEnabled: ptr.To(true)},
		MemoryReservationLockedToMax: ptr.To(true), MigrateEncryption: "required", FtEncryptionMode: "ftEncryptionDisabled",
		Crypto:      &types.CryptoSpecEncrypt{CryptoKeyId: types.CryptoKeyId{KeyId: "k", ProviderId: &types.KeyProviderId{Id: "p"}}},
		ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "a", Value: "b"}},
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			add(&types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Key: -500, Backing: &types.VirtualPCIPassthroughDynamicBackingInfo{
				AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{{VendorId: 1, DeviceId: 2}}, CustomLabel: "l",
			}}}),
			add(&types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Key: -501, Backing: &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: "p"}}}),
			add(&types.VirtualTPM{VirtualDevice: types.VirtualDevice{Key: -600}}),
		},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	var empty types.VirtualMachineConfigSpec
	configureHardware(&empty, &vspherev1.NovaVSphereHardware{}, &Template{})
	if diff := cmp.Diff(types.VirtualMachineConfigSpec{}, empty); diff != "" {
		t.Errorf("an empty spec: -want +got\n%s", diff)
	}
	configureHardware(&empty, &vspherev1.NovaVSphereHardware{TrustedPlatformModule: ptr.To(true)}, &Template{TPM: true})
	if len(empty.DeviceChange) != 0 {
		t.Error("a template's TPM is cloned, not added to")
	}
}

func TestPendingUpgrade(t *testing.T) {
	tests := []struct{ wanted, has, want string }{
		{"", "vmx-13", ""},
		{"vmx-19", "vmx-13", "the hardware version vmx-19"},
		{"vmx-9", "vmx-13", ""},
		{"vmx-13", "vmx-13", ""},
		{"vmx-19", "", ""},
	}
	for _, tt := range tests {
		m := &vspherev1.NovaVSphereMachine{}
		m.Spec.Hardware.Version = tt.wanted
		if got := PendingUpgrade(m, tt.has); got != tt.want {
			t.Errorf("%s on %s: got %q, want %q", tt.wanted, tt.has, got, tt.want)
		}
	}
}

func TestArchitecture(t *testing.T) {
	for guest, want := range map[string]string{
		"debian12_64Guest": "amd64", "arm_debian12_64Guest": "arm64", "vmwarePhoton64Guest": "amd64", "otherGuest": "", "": "",
	} {
		if got := architecture(guest); got != want {
			t.Errorf("%s: got %q, want %q", guest, got, want)
		}
	}
}
