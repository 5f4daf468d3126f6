package manifests

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

func vsphereMachine(namespace string) *vspherev1.NovaVSphereMachine {
	m := &vspherev1.NovaVSphereMachine{}
	m.Namespace, m.GenerateName = namespace, "rules-"
	m.Spec.Template.Name = "debian-12"
	m.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{{Network: "VM Network"}}
	return m
}

func vsphereCluster(namespace string) *vspherev1.NovaVSphereCluster {
	c := &vspherev1.NovaVSphereCluster{}
	c.Namespace, c.GenerateName = namespace, "rules-"
	c.Spec.Server = "vcenter.example.com"
	c.Spec.IdentityRef.Name = "vcenter"
	return c
}

func newNamespace(ctx context.Context) string {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rules-"}}
	ExpectWithOffset(1, server.Client.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// everything is a machine with all fields set.
func everything(m *vspherev1.NovaVSphereMachine) {
	m.Spec.CloneMode, m.Spec.Template.Snapshot = infrav1.CloneLinkedOrFull, "base"
	m.Spec.PowerOff = infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard, TimeoutSeconds: 60}
	m.Spec.Placement = vspherev1.NovaVSpherePlacement{
		Datacenter: "dc", ComputeCluster: "cluster", ResourcePool: "pool", HostGroup: "rack", VMGroup: "rack-vms", Folder: "nova/tenant",
		CreateFolder: ptr.To(true), DatastoreCluster: "pod", StoragePolicy: "gold",
	}
	m.Spec.Hardware = vspherev1.NovaVSphereHardware{
		CPUs: 4, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}, MemoryMiB: 4096, Version: "vmx-21",
		CPUReservationMHz: ptr.To[int64](0), CPULimitMHz: 4096, CPUShares: vspherev1.NovaVSphereShares{Level: vspherev1.SharesHigh},
		MemoryReservationMiB: ptr.To[int64](0), MemoryLimitMiB: 4096, MemoryShares: vspherev1.NovaVSphereShares{Value: 7},
		NestedVirtualization: ptr.To(true), Firmware: infrav1.FirmwareEFI, SecureBoot: ptr.To(true), TrustedPlatformModule: ptr.To(true),
		PCIDevices:   []vspherev1.NovaVSpherePCIDevice{{VendorID: 4318, DeviceID: 7864, CustomLabel: "gpu"}},
		VGPUProfiles: []string{"grid_t4-16q"},
		Encryption: vspherev1.NovaVSphereEncryption{
			Migration: vspherev1.EncryptionRequired, FaultTolerance: vspherev1.EncryptionDisabled, KeyID: "key", KeyProvider: "provider",
		},
		ExtraConfig: []vspherev1.NovaVSphereExtraConfig{{Name: "pciPassthru.use64bitMMIO", Value: "TRUE"}},
	}
	m.Spec.Disks = vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 40}, Template: []vspherev1.NovaVSphereTemplateDisk{{Name: "Hard disk 3", SizeGiB: 20}}, Data: []vspherev1.NovaVSphereDataDisk{{
		Name: "etcd", SizeGiB: 10, Provisioning: vspherev1.ProvisioningEagerZeroed, Datastore: "fast", StoragePolicy: "gold",
		Controller: vspherev1.NovaVSphereController{Type: vspherev1.ControllerNVMe, Bus: ptr.To[int32](0), Unit: ptr.To[int32](0)},
	}}}
	m.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{{
		Network: "DistributedVirtualPortgroup:dvportgroup-12", Type: vspherev1.InterfaceE1000e, DeviceName: "eth0",
		MTU:            9000,
		Routes:         []vspherev1.Route{{To: "198.51.100.0/24", Via: "192.0.2.3", Metric: 10}},
		DHCP6Overrides: vspherev1.NovaVSphereDHCPOverrides{UseDNS: ptr.To(false), RouteMetric: 100},
		InterfaceAddressing: infrav1.InterfaceAddressing{
			MACAddress: "02:00:00:00:00:01", DHCP6: ptr.To(true), Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"},
			AddressesFromPools: []ipamv1.IPPoolReference{{Name: "pool", Kind: "InClusterIPPool", APIGroup: "ipam.cluster.x-k8s.io"}},
			Gateway4:           "192.0.2.1", Gateway6: "2001:db8::1", Nameservers: []string{"192.0.2.2"}, SearchDomains: []string{"example.com"},
		},
	}}
	m.Spec.AntiAffinity = infrav1.AntiAffinityRequired
	m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "env", Name: "test"}}
	m.Spec.TagsFromLabels = []string{"team"}
	m.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: "cost", Value: "7"}}
	m.Spec.CreateMissingTags = ptr.To(true)
}

var _ = Describe("The rules of vSphere machines", func() {
	DescribeTable("refuse", func(ctx SpecContext, spoil func(*vspherev1.NovaVSphereMachine), message string) {
		namespace := newNamespace(ctx)
		Expect(server.Client.Create(ctx, vsphereMachine(namespace), client.DryRunAll)).To(Succeed())
		bad := vsphereMachine(namespace)
		spoil(bad)
		Expect(server.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a template of two names", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Template.ID = "vm-12" },
			"set exactly one of name, id and contentLibrary"),
		Entry("a template with a snapshot only", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Template = vspherev1.NovaVSphereTemplate{Snapshot: "base"}
		}, "set exactly one of name, id and contentLibrary"),
		Entry("an ID that is a name", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Template = vspherev1.NovaVSphereTemplate{ID: "debian"}
		}, "spec.template.id"),
		Entry("a linked clone that grows", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.CloneMode, m.Spec.Disks.Boot.SizeGiB = infrav1.CloneLinked, 40
		}, "a linked clone shares the disks of the template and cannot grow them"),
		Entry("two kinds of storage", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Placement = vspherev1.NovaVSpherePlacement{Datastore: "a", DatastoreCluster: "b"}
		}, "only one of datastore and datastoreCluster can be set"),
		Entry("a folder to create without a name", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Placement.CreateFolder = ptr.To(true) },
			"createFolder needs folder"),
		Entry("a group of VMs without one of hosts", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Placement.VMGroup = "rack-vms" },
			"vmGroup needs hostGroup"),
		Entry("secure boot with a BIOS", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware.SecureBoot, m.Spec.Hardware.Firmware = ptr.To(true), infrav1.FirmwareBIOS
		}, "secureBoot needs the firmware EFI"),
		Entry("a TPM without EFI", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.TrustedPlatformModule = ptr.To(true) },
			"trustedPlatformModule needs the firmware EFI"),
		Entry("more reserved than allowed", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware.CPUReservationMHz, m.Spec.Hardware.CPULimitMHz = ptr.To[int64](2000), 1000
		}, "cpuReservationMHz cannot be more than cpuLimitMHz"),
		Entry("more memory reserved than allowed", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware.MemoryReservationMiB, m.Spec.Hardware.MemoryLimitMiB = ptr.To[int64](2000), 1000
		}, "memoryReservationMiB cannot be more than memoryLimitMiB"),
		Entry("shares set twice", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware.MemoryShares = vspherev1.NovaVSphereShares{Value: 5, Level: vspherev1.SharesHigh}
		}, "spec.hardware.memoryShares"),
		Entry("a hardware version that is none", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.Version = "version-19" },
			"spec.hardware.version"),
		Entry("a linked clone with a key of its own", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.CloneMode, m.Spec.Hardware.Encryption.KeyProvider = infrav1.CloneLinked, "provider"
		}, "a linked clone has the key of its template"),
		Entry("a key without provider", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.Encryption.KeyID = "key" },
			"keyID needs keyProvider"),
		Entry("user data among settings", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware.ExtraConfig = []vspherev1.NovaVSphereExtraConfig{{Name: "GuestInfo.userdata", Value: "x"}}
		}, "the names guestinfo.*, nova.* and disk.EnableUUID belong to the provider"),
		Entry("our marks among settings", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Hardware.ExtraConfig = []vspherev1.NovaVSphereExtraConfig{{Name: "nova.disks", Value: "x"}}
		}, "the names guestinfo.*, nova.* and disk.EnableUUID belong to the provider"),
		Entry("two data disks of one name", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Disks.Data = []vspherev1.NovaVSphereDataDisk{{Name: "a", SizeGiB: 1}, {Name: "a", SizeGiB: 2}}
		}, "spec.disks.data[1]"),
		Entry("a unit of no bus", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Disks.Data = []vspherev1.NovaVSphereDataDisk{{Name: "a", SizeGiB: 1, Controller: vspherev1.NovaVSphereController{Unit: ptr.To[int32](1)}}}
		}, "unit needs bus"),
		Entry("a gateway without address", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Network.Interfaces[0].Gateway4 = "192.0.2.1" },
			"gateway4 needs an address"),
		Entry("an address without length", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Network.Interfaces[0].Addresses = []string{"192.0.2.10"}
		}, "an address is written with the length of its network"),
		Entry("overrides of properties that are not set", func(m *vspherev1.NovaVSphereMachine) {
			m.Spec.Network.Interfaces[0].DHCP6Overrides.RouteMetric = 5
		}, "dhcp6Overrides needs dhcp6"),
	)

	It("allow all fields together, and changes of mutable fields", func(ctx SpecContext) {
		m := vsphereMachine(newNamespace(ctx))
		everything(m)
		Expect(server.Client.Create(ctx, m)).To(Succeed())
		m.Spec.ProviderID = "vsphere://one"
		m.Spec.PowerOff = infrav1.PowerOff{}
		m.Spec.AntiAffinity = infrav1.AntiAffinityNone
		m.Spec.Tags, m.Spec.TagsFromLabels, m.Spec.CustomAttributes, m.Spec.CreateMissingTags = nil, nil, nil, nil
		Expect(server.Client.Update(ctx, m)).To(Succeed())
	})

	DescribeTable("refuse to change", func(ctx SpecContext, change func(*vspherev1.NovaVSphereMachine)) {
		m := vsphereMachine(newNamespace(ctx))
		everything(m)
		Expect(server.Client.Create(ctx, m)).To(Succeed())
		change(m)
		Expect(server.Client.Update(ctx, m)).To(MatchError(And(ContainSubstring("spec is immutable"), ContainSubstring(": change the machine template to replace machines"))))
	},
		Entry("the template", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Template.Name = "other" }),
		Entry("the snapshot", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Template.Snapshot = "other" }),
		Entry("the clone mode to nothing", func(m *vspherev1.NovaVSphereMachine) { m.Spec.CloneMode = "" }),
		Entry("the placement", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Placement.HostGroup = "other" }),
		Entry("the hardware", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Hardware.ExtraConfig[0].Value = "FALSE" }),
		Entry("a disk", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Disks.Data[0].SizeGiB = 11 }),
		Entry("an interface", func(m *vspherev1.NovaVSphereMachine) { m.Spec.Network.Interfaces[0].MTU = 1500 }),
	)

	DescribeTable("refuse in a template", func(ctx SpecContext, spoil func(*vspherev1.NovaVSphereMachineSpec), message string) {
		namespace := newNamespace(ctx)
		template := &vspherev1.NovaVSphereMachineTemplate{}
		template.Namespace, template.Name = namespace, "workers"
		template.Spec.Template.Spec = vsphereMachine(namespace).Spec
		Expect(server.Client.Create(ctx, template.DeepCopy(), client.DryRunAll)).To(Succeed())
		spoil(&template.Spec.Template.Spec)
		Expect(server.Client.Create(ctx, template)).To(MatchError(ContainSubstring(message)))
	},
		Entry("an address", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Network.Interfaces[0].Addresses = []string{"192.0.2.10/24"}
		}, "addresses and macAddress belong to one machine and cannot be set in a template: use addressesFromPools"),
		Entry("a hardware address", func(s *vspherev1.NovaVSphereMachineSpec) {
			s.Network.Interfaces[0].MACAddress = "02:00:00:00:00:01"
		}, "addresses and macAddress belong to one machine and cannot be set in a template: use addressesFromPools"),
	)

	It("keep the status of a template apart from its spec", func(ctx SpecContext) {
		template := &vspherev1.NovaVSphereMachineTemplate{}
		template.Namespace, template.Name = newNamespace(ctx), "workers"
		template.Spec.Template.Spec = vsphereMachine(template.Namespace).Spec
		Expect(server.Client.Create(ctx, template)).To(Succeed())
		template.Status.NodeInfo.Architecture = "amd64"
		Expect(server.Client.Status().Update(ctx, template)).To(Succeed())
		Expect(server.Client.Get(ctx, client.ObjectKeyFromObject(template), template)).To(Succeed())
		Expect(template.Status.NodeInfo.Architecture).To(Equal("amd64"))
	})
})

var _ = Describe("The rules of vSphere clusters", func() {
	DescribeTable("refuse", func(ctx SpecContext, domains []vspherev1.NovaVSphereFailureDomain, message string) {
		c := vsphereCluster(newNamespace(ctx))
		Expect(server.Client.Create(ctx, c.DeepCopy(), client.DryRunAll)).To(Succeed())
		c.Spec.FailureDomains = domains
		Expect(server.Client.Create(ctx, c)).To(MatchError(ContainSubstring(message)))
	},
		Entry("two domains of one name", []vspherev1.NovaVSphereFailureDomain{{FailureDomain: infrav1.FailureDomain{Name: "a"}}, {FailureDomain: infrav1.FailureDomain{Name: "a"}}}, "spec.failureDomains[1]"),
		Entry("a domain without name", []vspherev1.NovaVSphereFailureDomain{{Template: vspherev1.NovaVSphereTemplate{Name: "a"}}}, "spec.failureDomains[0].name"),
		Entry("a name with spaces", []vspherev1.NovaVSphereFailureDomain{{FailureDomain: infrav1.FailureDomain{Name: "a b"}}}, "spec.failureDomains[0].name"),
		Entry("two templates", []vspherev1.NovaVSphereFailureDomain{{FailureDomain: infrav1.FailureDomain{Name: "a"}, Template: vspherev1.NovaVSphereTemplate{Name: "t", ID: "vm-1"}}},
			"set exactly one of name, id and contentLibrary"),
		Entry("a network for all beside another", []vspherev1.NovaVSphereFailureDomain{{FailureDomain: infrav1.FailureDomain{Name: "a", Networks: []infrav1.FailureDomainNetwork{
			{Network: "all"}, {Network: "second", Interface: ptr.To[int32](1)},
		}}}}, "a network without interface is for all interfaces: it must be the only one"),
	)

	It("allow a domain with all fields", func(ctx SpecContext) {
		c := vsphereCluster(newNamespace(ctx))
		c.Spec.IdentityRef = infrav1.IdentityReference{Kind: vspherev1.NovaVSphereIdentityKind, Name: "shared"}
		c.Spec.Server = ""
		c.Spec.AntiAffinity = infrav1.AntiAffinityRequired
		c.Spec.FailureDomains = []vspherev1.NovaVSphereFailureDomain{{
			FailureDomain: infrav1.FailureDomain{
				Name: "rack-1", ControlPlane: ptr.To(false),
				Networks: []infrav1.FailureDomainNetwork{{Interface: ptr.To[int32](0), Network: "rack-1", Nameservers: []string{"192.0.2.1"}}},
			},
			Template:     vspherev1.NovaVSphereTemplate{Name: "debian-12"},
			Placement:    vspherev1.NovaVSpherePlacement{ComputeCluster: "one", DatastoreCluster: "pod"},
			RequiredTags: []vspherev1.NovaVSphereTag{{Category: "zone", Name: "rack-1"}},
		}}
		Expect(server.Client.Create(ctx, c)).To(Succeed())
	})

	It("allow an identity without namespaces", func(ctx SpecContext) {
		identity := &vspherev1.NovaVSphereIdentity{}
		identity.GenerateName = "shared-"
		Expect(server.Client.Create(ctx, identity.DeepCopy())).To(MatchError(ContainSubstring("spec: Required value")))
		identity.Spec.CredentialsSecretRef.Name = "vcenter"
		Expect(server.Client.Create(ctx, identity.DeepCopy())).To(MatchError(ContainSubstring("spec.server: Required value")))
		identity.Spec.Server = "vcenter.example.com"
		Expect(server.Client.Create(ctx, identity)).To(Succeed())
	})
})
