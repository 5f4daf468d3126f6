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
)

func vsphereMachine(namespace string) *infrav1.NovaVSphereMachine {
	m := &infrav1.NovaVSphereMachine{}
	m.Namespace, m.GenerateName = namespace, "rules-"
	m.Spec.Template = "debian-12"
	m.Spec.Network.Interfaces = []infrav1.NovaVSphereInterface{{Network: "VM Network"}}
	return m
}

func vsphereCluster(namespace string) *infrav1.NovaVSphereCluster {
	c := &infrav1.NovaVSphereCluster{}
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

// everything is a machine that says all that can be said.
func everything(m *infrav1.NovaVSphereMachine) {
	m.Spec.Clone = infrav1.NovaVSphereClone{Mode: infrav1.CloneLinkedOrFull, Snapshot: "base"}
	m.Spec.PowerOff = infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard, TimeoutSeconds: 60}
	m.Spec.Placement = infrav1.NovaVSpherePlacement{
		Datacenter: "dc", ComputeCluster: "cluster", ResourcePool: "pool", HostGroup: "rack", VMGroup: "rack-vms", Folder: "nova/tenant",
		CreateFolder: ptr.To(true), DatastoreCluster: "pod", StoragePolicy: "gold",
	}
	allocation := infrav1.NovaVSphereAllocation{Reservation: ptr.To[int64](0), Limit: 4096, SharesLevel: infrav1.SharesHigh}
	m.Spec.Hardware = infrav1.NovaVSphereHardware{
		CPUs: 4, CoresPerSocket: 2, MemoryMiB: 4096, CPUAllocation: allocation, MemoryAllocation: allocation, Version: "vmx-21",
		NestedVirtualization: ptr.To(true), Firmware: infrav1.FirmwareEFI, SecureBoot: ptr.To(true), TrustedPlatformModule: ptr.To(true),
		PCIDevices:   []infrav1.NovaVSpherePCIDevice{{VendorID: 4318, DeviceID: 7864, CustomLabel: "gpu"}},
		VGPUProfiles: []string{"grid_t4-16q"},
		Encryption: infrav1.NovaVSphereEncryption{
			Migration: infrav1.EncryptionRequired, FaultTolerance: infrav1.EncryptionDisabled, KeyID: "key", KeyProvider: "provider",
		},
		ExtraConfig: []infrav1.NovaVSphereExtraConfig{{Key: "pciPassthru.use64bitMMIO", Value: "TRUE"}},
	}
	m.Spec.Disks = infrav1.NovaVSphereDisks{BootGiB: 40, TemplateGiB: []int32{0, 20}, Data: []infrav1.NovaVSphereDataDisk{{
		Name: "etcd", SizeGiB: 10, Provisioning: infrav1.ProvisioningEagerZeroed, Datastore: "fast", StoragePolicy: "gold",
		Controller: infrav1.NovaVSphereController{Type: infrav1.ControllerNVMe, Bus: ptr.To[int32](0), Unit: ptr.To[int32](0)},
	}}}
	m.Spec.Network.Interfaces = []infrav1.NovaVSphereInterface{{
		Network: "DistributedVirtualPortgroup:dvportgroup-12", Type: infrav1.InterfaceE1000e, DeviceName: "eth0",
		DHCP6Overrides: infrav1.NovaVSphereDHCPOverrides{UseDNS: ptr.To(false), RouteMetric: 100},
		InterfaceAddressing: infrav1.InterfaceAddressing{
			MACAddress: "02:00:00:00:00:01", MTU: 9000, DHCP6: ptr.To(true), Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"},
			AddressesFromPools: []ipamv1.IPPoolReference{{Name: "pool", Kind: "InClusterIPPool", APIGroup: "ipam.cluster.x-k8s.io"}},
			Gateway4:           "192.0.2.1", Gateway6: "2001:db8::1", Nameservers: []string{"192.0.2.2"}, SearchDomains: []string{"example.com"},
			Routes: []infrav1.Route{{To: "198.51.100.0/24", Via: "192.0.2.3", Metric: 10}},
		},
	}}
	m.Spec.Spread = infrav1.SpreadRequired
	m.Spec.Marks = infrav1.NovaVSphereMarks{
		Tags: []infrav1.NovaVSphereTag{{Category: "env", Name: "test"}}, LabelTags: []string{"team"},
		Attributes: []infrav1.NovaVSphereAttribute{{Name: "cost", Value: "7"}}, Missing: infrav1.MissingCreate,
	}
}

var _ = Describe("The rules of vSphere machines", func() {
	DescribeTable("refuse", func(ctx SpecContext, spoil func(*infrav1.NovaVSphereMachine), message string) {
		namespace := newNamespace(ctx)
		Expect(server.Client.Create(ctx, vsphereMachine(namespace), client.DryRunAll)).To(Succeed())
		bad := vsphereMachine(namespace)
		spoil(bad)
		Expect(server.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("two sources", func(m *infrav1.NovaVSphereMachine) { m.Spec.Source.Reference = "vm-12" },
			"spec.template or spec.source must say what the VM is cloned from, and only one of them"),
		Entry("no source", func(m *infrav1.NovaVSphereMachine) { m.Spec.Template = "" },
			"spec.template or spec.source must say what the VM is cloned from, and only one of them"),
		Entry("a source that is two things", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Template = ""
			m.Spec.Source = infrav1.NovaVSphereSource{Reference: "vm-12", UUID: "6ba7b810-9dad-51d1-80b4-00c04fd430c8"}
		}, "spec.source"),
		Entry("a reference that is a name", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Template, m.Spec.Source.Reference = "", "debian"
		}, "spec.source.reference"),
		Entry("a linked clone that grows", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Clone.Mode, m.Spec.Disks.BootGiB = infrav1.CloneLinked, 40
		}, "a linked clone shares the template's disks and cannot grow them"),
		Entry("two kinds of storage", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Placement = infrav1.NovaVSpherePlacement{Datastore: "a", DatastoreCluster: "b"}
		}, "only one of datastore and datastoreCluster can be set"),
		Entry("a folder to create without a name", func(m *infrav1.NovaVSphereMachine) { m.Spec.Placement.CreateFolder = ptr.To(true) },
			"createFolder needs folder"),
		Entry("a group of VMs without one of hosts", func(m *infrav1.NovaVSphereMachine) { m.Spec.Placement.VMGroup = "rack-vms" },
			"vmGroup needs hostGroup"),
		Entry("secure boot with a BIOS", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Hardware.SecureBoot, m.Spec.Hardware.Firmware = ptr.To(true), infrav1.FirmwareBIOS
		}, "secureBoot needs the firmware EFI"),
		Entry("a TPM without EFI", func(m *infrav1.NovaVSphereMachine) { m.Spec.Hardware.TrustedPlatformModule = ptr.To(true) },
			"trustedPlatformModule needs the firmware EFI"),
		Entry("more reserved than allowed", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Hardware.CPUAllocation = infrav1.NovaVSphereAllocation{Reservation: ptr.To[int64](2000), Limit: 1000}
		}, "reservation cannot be more than limit"),
		Entry("shares said twice", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Hardware.MemoryAllocation = infrav1.NovaVSphereAllocation{Shares: 5, SharesLevel: infrav1.SharesHigh}
		}, "only one of shares and sharesLevel can be set"),
		Entry("a hardware version that is none", func(m *infrav1.NovaVSphereMachine) { m.Spec.Hardware.Version = "version-19" },
			"spec.hardware.version"),
		Entry("a linked clone with a key of its own", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Clone.Mode, m.Spec.Hardware.Encryption.KeyProvider = infrav1.CloneLinked, "provider"
		}, "a linked clone has the key of its template"),
		Entry("a key without provider", func(m *infrav1.NovaVSphereMachine) { m.Spec.Hardware.Encryption.KeyID = "key" },
			"keyID needs keyProvider"),
		Entry("user data among settings", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Hardware.ExtraConfig = []infrav1.NovaVSphereExtraConfig{{Key: "GuestInfo.userdata", Value: "x"}}
		}, "the keys guestinfo.*, nova.* and disk.EnableUUID belong to the provider"),
		Entry("our marks among settings", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Hardware.ExtraConfig = []infrav1.NovaVSphereExtraConfig{{Key: "nova.disks", Value: "x"}}
		}, "the keys guestinfo.*, nova.* and disk.EnableUUID belong to the provider"),
		Entry("two data disks of one name", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Disks.Data = []infrav1.NovaVSphereDataDisk{{Name: "a", SizeGiB: 1}, {Name: "a", SizeGiB: 2}}
		}, "spec.disks.data[1]"),
		Entry("a unit of no bus", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Disks.Data = []infrav1.NovaVSphereDataDisk{{Name: "a", SizeGiB: 1, Controller: infrav1.NovaVSphereController{Unit: ptr.To[int32](1)}}}
		}, "unit needs bus"),
		Entry("a gateway without address", func(m *infrav1.NovaVSphereMachine) { m.Spec.Network.Interfaces[0].Gateway4 = "192.0.2.1" },
			"gateway4 needs an address"),
		Entry("an address without length", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Network.Interfaces[0].Addresses = []string{"192.0.2.10"}
		}, "an address is written with the length of its network"),
		Entry("overrides of what is not asked", func(m *infrav1.NovaVSphereMachine) {
			m.Spec.Network.Interfaces[0].DHCP6Overrides.RouteMetric = 5
		}, "dhcp6Overrides needs dhcp6"),
	)

	It("allow everything at once, and change of what can change", func(ctx SpecContext) {
		m := vsphereMachine(newNamespace(ctx))
		everything(m)
		Expect(server.Client.Create(ctx, m)).To(Succeed())
		m.Spec.ProviderID = "vsphere://one"
		m.Spec.PowerOff = infrav1.PowerOff{}
		m.Spec.Spread = infrav1.SpreadNever
		m.Spec.Marks = infrav1.NovaVSphereMarks{}
		Expect(server.Client.Update(ctx, m)).To(Succeed())
	})

	DescribeTable("refuse to change", func(ctx SpecContext, change func(*infrav1.NovaVSphereMachine)) {
		m := vsphereMachine(newNamespace(ctx))
		everything(m)
		Expect(server.Client.Create(ctx, m)).To(Succeed())
		change(m)
		Expect(server.Client.Update(ctx, m)).To(MatchError(ContainSubstring("spec is immutable: change the machine template to replace machines")))
	},
		Entry("the source", func(m *infrav1.NovaVSphereMachine) { m.Spec.Template, m.Spec.Source.Reference = "", "vm-12" }),
		Entry("the way of cloning", func(m *infrav1.NovaVSphereMachine) { m.Spec.Clone.Snapshot = "other" }),
		Entry("the way of cloning to nothing", func(m *infrav1.NovaVSphereMachine) { m.Spec.Clone = infrav1.NovaVSphereClone{} }),
		Entry("the placement", func(m *infrav1.NovaVSphereMachine) { m.Spec.Placement.HostGroup = "other" }),
		Entry("the hardware", func(m *infrav1.NovaVSphereMachine) { m.Spec.Hardware.ExtraConfig[0].Value = "FALSE" }),
		Entry("a disk", func(m *infrav1.NovaVSphereMachine) { m.Spec.Disks.Data[0].SizeGiB = 11 }),
		Entry("an interface", func(m *infrav1.NovaVSphereMachine) { m.Spec.Network.Interfaces[0].MTU = 1500 }),
	)

	DescribeTable("refuse in a template", func(ctx SpecContext, spoil func(*infrav1.NovaVSphereMachineSpec), message string) {
		namespace := newNamespace(ctx)
		template := &infrav1.NovaVSphereMachineTemplate{}
		template.Namespace, template.Name = namespace, "workers"
		template.Spec.Template.Spec = vsphereMachine(namespace).Spec
		Expect(server.Client.Create(ctx, template.DeepCopy(), client.DryRunAll)).To(Succeed())
		spoil(&template.Spec.Template.Spec)
		Expect(server.Client.Create(ctx, template)).To(MatchError(ContainSubstring(message)))
	},
		Entry("an address", func(s *infrav1.NovaVSphereMachineSpec) {
			s.Network.Interfaces[0].Addresses = []string{"192.0.2.10/24"}
		}, "addresses and macAddress belong to one machine and cannot stand in a template: take addresses from pools"),
		Entry("a hardware address", func(s *infrav1.NovaVSphereMachineSpec) {
			s.Network.Interfaces[0].MACAddress = "02:00:00:00:00:01"
		}, "addresses and macAddress belong to one machine and cannot stand in a template: take addresses from pools"),
	)

	It("keep the status of a template apart from its spec", func(ctx SpecContext) {
		template := &infrav1.NovaVSphereMachineTemplate{}
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
	DescribeTable("refuse", func(ctx SpecContext, domains []infrav1.NovaVSphereFailureDomain, message string) {
		c := vsphereCluster(newNamespace(ctx))
		Expect(server.Client.Create(ctx, c.DeepCopy(), client.DryRunAll)).To(Succeed())
		c.Spec.FailureDomains = domains
		Expect(server.Client.Create(ctx, c)).To(MatchError(ContainSubstring(message)))
	},
		Entry("two domains of one name", []infrav1.NovaVSphereFailureDomain{{Name: "a"}, {Name: "a"}}, "spec.failureDomains[1]"),
		Entry("a domain without name", []infrav1.NovaVSphereFailureDomain{{Template: "a"}}, "spec.failureDomains[0].name"),
		Entry("a name with spaces", []infrav1.NovaVSphereFailureDomain{{Name: "a b"}}, "spec.failureDomains[0].name"),
		Entry("two sources", []infrav1.NovaVSphereFailureDomain{{Name: "a", Template: "t", Source: infrav1.NovaVSphereSource{Reference: "vm-1"}}},
			"only one of template and source can be set"),
		Entry("a network for all beside another", []infrav1.NovaVSphereFailureDomain{{Name: "a", Networks: []infrav1.NovaVSphereDomainNetwork{
			{Network: "all"}, {Network: "second", Interface: ptr.To[int32](1)},
		}}}, "a network without interface is for all interfaces and stands alone"),
	)

	It("allow a domain that says all", func(ctx SpecContext) {
		c := vsphereCluster(newNamespace(ctx))
		c.Spec.IdentityRef = infrav1.NovaVSphereIdentityReference{Kind: infrav1.NovaVSphereIdentityKind, Name: "shared"}
		c.Spec.Server = ""
		c.Spec.Spread = infrav1.SpreadRequired
		c.Spec.FailureDomains = []infrav1.NovaVSphereFailureDomain{{
			Name: "rack-1", ControlPlane: ptr.To(false), Template: "debian-12",
			Placement:    infrav1.NovaVSpherePlacement{ComputeCluster: "one", DatastoreCluster: "pod"},
			Networks:     []infrav1.NovaVSphereDomainNetwork{{Interface: ptr.To[int32](0), Network: "rack-1", Nameservers: []string{"192.0.2.1"}}},
			RequiredTags: []infrav1.NovaVSphereTag{{Category: "zone", Name: "rack-1"}},
		}}
		Expect(server.Client.Create(ctx, c)).To(Succeed())
	})

	It("allow an identity without namespaces", func(ctx SpecContext) {
		identity := &infrav1.NovaVSphereIdentity{}
		identity.GenerateName = "shared-"
		Expect(server.Client.Create(ctx, identity.DeepCopy())).To(MatchError(ContainSubstring("spec: Required value")))
		identity.Spec.SecretRef.Name = "vcenter"
		Expect(server.Client.Create(ctx, identity.DeepCopy())).To(MatchError(ContainSubstring("spec.server: Required value")))
		identity.Spec.Server = "vcenter.example.com"
		Expect(server.Client.Create(ctx, identity)).To(Succeed())
	})
})
