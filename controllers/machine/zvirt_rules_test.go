package machine_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// zvirtMachine returns a valid machine.
func zvirtMachine(namespace string) *infrav1.NovaZVirtMachine {
	return &infrav1.NovaZVirtMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"},
		Spec: infrav1.NovaZVirtMachineSpec{
			Template: infrav1.NovaZVirtTemplateReference{Name: "node"},
			Network:  infrav1.NovaZVirtNetwork{Interfaces: []infrav1.NovaZVirtInterface{{}}},
		},
	}
}

// zvirtCluster returns a valid cluster.
func zvirtCluster(namespace string) *infrav1.NovaZVirtCluster {
	return &infrav1.NovaZVirtCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
		Spec: infrav1.NovaZVirtClusterSpec{
			ClusterSpec: infrav1.ClusterSpec{Server: "engine.example.test"}, IdentityRef: infrav1.NovaZVirtIdentityReference{Name: "engine"},
		},
	}
}

var _ = Describe("The rules of a NovaZVirtMachine", func() {
	type spec = infrav1.NovaZVirtMachineSpec

	It("take all that can be said", func(ctx SpecContext) {
		rig := newRig(ctx)
		m := zvirtMachine(rig.Namespace)
		m.Spec = spec{
			Template:        infrav1.NovaZVirtTemplateReference{Name: "node", Version: 3},
			Placement:       infrav1.NovaZVirtPlacement{DataCenter: "dc", Cluster: "c", StorageDomain: "s", Hosts: []string{"h"}},
			PlacementPolicy: infrav1.NovaZVirtPlacementPolicy{Affinity: "migratable"},
			Hardware: infrav1.NovaZVirtHardware{
				CPU:       infrav1.NovaZVirtCPU{Sockets: 1, Cores: 2, Threads: 2, Type: "x", Mode: "host_passthrough", PinningPolicy: "resize_and_pin_numa"},
				MemoryMiB: 4096, GuaranteedMemoryMiB: 1024, MaxMemoryMiB: 8192, Ballooning: ptr.To(true), HugepagesKiB: 2048,
				VMType: "high_performance", OSType: "rhel_9x64", BIOSType: "q35_ovmf", Headless: ptr.To(true), SerialConsole: ptr.To(true),
				CustomProperties: []infrav1.NovaZVirtCustomProperty{{Name: "a", Value: "b"}},
			},
			Storage: infrav1.NovaZVirtStorage{
				Allocation: infrav1.ZVirtClone, BootDisk: infrav1.NovaZVirtTemplateDisk{SizeGiB: 20, StorageDomain: "s", Format: "raw", Sparse: ptr.To(false)},
				TemplateDisks: []infrav1.NovaZVirtNamedDisk{{Name: "var", NovaZVirtTemplateDisk: infrav1.NovaZVirtTemplateDisk{SizeGiB: 9}}},
				DataDisks:     []infrav1.NovaZVirtDataDisk{{Name: "etcd", SizeGiB: 8, Interface: "virtio", Bootable: ptr.To(true)}},
			},
			Network: infrav1.NovaZVirtNetwork{Interfaces: []infrav1.NovaZVirtInterface{{
				VNICProfile: "net/net", GuestName: "enp1s0", InterfaceAddressing: infrav1.InterfaceAddressing{
					MACAddress: "02:00:00:00:00:01", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Gateway4: "192.0.2.1", Nameservers: []string{"192.0.2.2"},
				},
			}}},
			HighAvailability: infrav1.NovaZVirtHighAvailability{Priority: 1, LeaseStorageDomain: "s"},
			Affinity:         infrav1.NovaZVirtAffinity{AntiAffinity: infrav1.ZVirtHardAntiAffinity, Groups: []string{"g"}, Labels: []string{"l"}},
			Tags:             []string{"t"},
		}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.PowerOff = infrav1.PowerOff{Mode: infrav1.PowerOffSoft}
		m.Spec.ProviderID = "zvirt://one"
		Expect(rig.Client.Update(ctx, m)).To(Succeed(), "these two can change")
	})

	DescribeTable("refuse", func(ctx SpecContext, spoil func(*spec), message string) {
		rig := newRig(ctx)
		Expect(rig.Client.Create(ctx, zvirtMachine(rig.Namespace), client.DryRunAll)).To(Succeed())
		bad := zvirtMachine(rig.Namespace)
		spoil(&bad.Spec)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("no template", func(m *spec) { m.Template = infrav1.NovaZVirtTemplateReference{} }, "spec.template"),
		Entry("a template of two names", func(m *spec) { m.Template.ID = strings.Repeat("0", 36) }, "template"),
		Entry("a version of an ID", func(m *spec) {
			m.Template = infrav1.NovaZVirtTemplateReference{ID: "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11", Version: 1}
		}, "version belongs to name"),
		Entry("no interface", func(m *spec) { m.Network.Interfaces = nil }, "spec.network"),
		Entry("an instance type and memory", func(m *spec) {
			m.Hardware = infrav1.NovaZVirtHardware{InstanceType: "Small", MemoryMiB: 1024}
		}, "an instanceType says processors and memory itself"),
		Entry("an instance type and cores", func(m *spec) {
			m.Hardware = infrav1.NovaZVirtHardware{InstanceType: "Small", CPU: infrav1.NovaZVirtCPU{Cores: 1}}
		}, "an instanceType says processors and memory itself"),
		Entry("more guaranteed than there is", func(m *spec) {
			m.Hardware = infrav1.NovaZVirtHardware{MemoryMiB: 1024, GuaranteedMemoryMiB: 2048}
		}, "guaranteedMemoryMiB needs memoryMiB and cannot be more than it"),
		Entry("a maximum below", func(m *spec) {
			m.Hardware = infrav1.NovaZVirtHardware{MemoryMiB: 1024, MaxMemoryMiB: 512}
		}, "maxMemoryMiB needs memoryMiB and cannot be less than it"),
		Entry("odd huge pages", func(m *spec) { m.Hardware = infrav1.NovaZVirtHardware{HugepagesKiB: 4096} }, "hugepagesKiB"),
		Entry("huge pages as a property", func(m *spec) {
			m.Hardware.CustomProperties = []infrav1.NovaZVirtCustomProperty{{Name: "hugepages", Value: "2048"}}
		}, "hugepages has a field of its own"),
		Entry("a highly available VM that cannot move", func(m *spec) {
			m.HighAvailability.Priority = 1
			m.PlacementPolicy.Affinity = "pinned"
		}, "a highly available VM must be migratable"),
		Entry("a passed device and high availability", func(m *spec) {
			m.HighAvailability.Priority = 1
			m.Hardware.PCIDevices = []infrav1.NovaZVirtPCIDevice{{VendorID: 0x10de, DeviceID: 0x1eb8}}
		}, "a VM with pciDevices runs on one host only"),
		Entry("a thin raw boot disk", func(m *spec) { m.Storage.BootDisk.Format = "raw" }, "a thin disk is sparse and cow"),
		Entry("a thin disk that is not sparse", func(m *spec) {
			m.Storage.TemplateDisks = []infrav1.NovaZVirtNamedDisk{{Name: "a", NovaZVirtTemplateDisk: infrav1.NovaZVirtTemplateDisk{Sparse: ptr.To(false)}}}
		}, "a thin disk is sparse and cow"),
		Entry("a cow disk that is not sparse", func(m *spec) {
			m.Storage.DataDisks = []infrav1.NovaZVirtDataDisk{{Name: "a", SizeGiB: 1, Format: "cow", Sparse: ptr.To(false)}}
		}, "a cow disk is sparse"),
		Entry("two disks to boot from", func(m *spec) {
			m.Storage.DataDisks = []infrav1.NovaZVirtDataDisk{{Name: "a", SizeGiB: 1, Bootable: ptr.To(true)}, {Name: "b", SizeGiB: 1, Bootable: ptr.To(true)}}
		}, "only one can be bootable"),
		Entry("two disks of a name", func(m *spec) {
			m.Storage.DataDisks = []infrav1.NovaZVirtDataDisk{{Name: "a", SizeGiB: 1}, {Name: "a", SizeGiB: 1}}
		}, "Duplicate value"),
		Entry("a TPM without UEFI", func(m *spec) {
			m.Hardware = infrav1.NovaZVirtHardware{BIOSType: "q35_sea_bios", TrustedPlatformModule: ptr.To(true)}
		}, "needs UEFI"),
		Entry("an unknown kind of network card", func(m *spec) { m.Network.Interfaces[0].Type = "vmxnet3" }, "interfaces[0].type"),
		Entry("an MTU", func(m *spec) { m.Network.Interfaces[0].MTU = 9000 }, "change it there"),
		Entry("routes", func(m *spec) {
			m.Network.Interfaces[0].Routes = []infrav1.Route{{To: "198.51.100.0/24", Via: "192.0.2.1"}}
		}, "the engine cannot tell a guest routes"),
		Entry("routes of a failure domain", func(m *spec) {
			m.Network.Interfaces[0].FailureDomains = []infrav1.InterfaceFailureDomain{
				{Name: "a"}, {Name: "b", Routes: []infrav1.Route{{To: "198.51.100.0/24", Via: "192.0.2.1"}}},
			}
		}, "the engine cannot tell a guest routes"),
		Entry("a gateway of a failure domain without an address", func(m *spec) {
			m.Network.Interfaces[0].FailureDomains = []infrav1.InterfaceFailureDomain{{Name: "a", Gateway4: "192.0.2.1"}}
		}, "gateway4 needs addressesFromPools"),
		Entry("a name server of a failure domain that is no address", func(m *spec) {
			m.Network.Interfaces[0].FailureDomains = []infrav1.InterfaceFailureDomain{{Name: "a", Nameservers: []string{"ns.example.com"}}}
		}, "a name server must be an IP address"),
		Entry("two addresses of a family", func(m *spec) {
			m.Network.Interfaces[0].Addresses = []string{"192.0.2.10/24", "192.0.2.11/24"}
		}, "one address of each family"),
		Entry("unknown strictness", func(m *spec) { m.Affinity.AntiAffinity = "hard" }, "antiAffinity"),
	)

	DescribeTable("refuse to change", func(ctx SpecContext, change func(*spec), message string) {
		rig := newRig(ctx)
		m := zvirtMachine(rig.Namespace)
		m.Spec.Tags = []string{"a"}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.ProviderID = "zvirt://one"
		Expect(rig.Client.Update(ctx, m)).To(Succeed())
		change(&m.Spec)
		Expect(rig.Client.Update(ctx, m)).To(MatchError(ContainSubstring(message)))
	},
		Entry("the template", func(m *spec) { m.Template.Name = "other" }, "spec is immutable"),
		Entry("the placement", func(m *spec) { m.Placement.Cluster = "other" }, "spec is immutable"),
		Entry("the placement policy", func(m *spec) { m.PlacementPolicy.Affinity = "pinned" }, "spec is immutable"),
		Entry("the hardware", func(m *spec) { m.Hardware.MemoryMiB = 1024 }, "spec is immutable"),
		Entry("the storage", func(m *spec) { m.Storage.BootDisk.SizeGiB = 99 }, "spec is immutable"),
		Entry("the network", func(m *spec) { m.Network.Interfaces[0].VNICProfile = "a/b" }, "spec is immutable"),
		Entry("the availability", func(m *spec) { m.HighAvailability.Priority = 1 }, "spec is immutable"),
		Entry("the naming", func(m *spec) { m.Naming.Template = "vm-{{ .machine.name }}" }, "spec is immutable"),
		Entry("the affinity", func(m *spec) { m.Affinity.AntiAffinity = infrav1.ZVirtNoAntiAffinity }, "spec is immutable"),
		Entry("the tags to nothing", func(m *spec) { m.Tags = nil }, "spec is immutable"),
		Entry("the provider ID", func(m *spec) { m.ProviderID = "zvirt://two" }, "providerID cannot change once it is set"),
		Entry("the provider ID to nothing", func(m *spec) { m.ProviderID = "" }, "providerID cannot change once it is set"),
	)

	DescribeTable("refuse in a template", func(ctx SpecContext, spoil func(*spec), message string) {
		rig := newRig(ctx)
		template := &infrav1.NovaZVirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "workers"}}
		template.Spec.Template.Spec = zvirtMachine(rig.Namespace).Spec
		template.Spec.Template.Spec.Network.Interfaces[0].AddressesFromPools = []ipamv1.IPPoolReference{{APIGroup: "ipam.example.test", Kind: "Pool", Name: "p"}}
		Expect(rig.Client.Create(ctx, template.DeepCopy(), client.DryRunAll)).To(Succeed())
		spoil(&template.Spec.Template.Spec)
		Expect(rig.Client.Create(ctx, template)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a provider ID", func(m *spec) { m.ProviderID = "zvirt://one" }, "providerID belongs to one machine"),
		Entry("an address", func(m *spec) { m.Network.Interfaces[0].Addresses = []string{"192.0.2.10/24"} }, "belong to one machine"),
		Entry("a hardware address", func(m *spec) { m.Network.Interfaces[0].MACAddress = "02:00:00:00:00:01" }, "belong to one machine"),
	)

	It("refuse a name that is no host name", func(ctx SpecContext) {
		rig := newRig(ctx)
		m := zvirtMachine(rig.Namespace)
		m.Name = strings.Repeat("a", 64)
		Expect(rig.Client.Create(ctx, m)).To(MatchError(ContainSubstring("can have at most 63 characters")))
	})
})

var _ = Describe("The rules of a NovaZVirtCluster", func() {
	DescribeTable("refuse", func(ctx SpecContext, spoil func(*infrav1.NovaZVirtClusterSpec), message string) {
		rig := newRig(ctx)
		Expect(rig.Client.Create(ctx, zvirtCluster(rig.Namespace), client.DryRunAll)).To(Succeed())
		bad := zvirtCluster(rig.Namespace)
		spoil(&bad.Spec)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a server with a scheme", func(c *infrav1.NovaZVirtClusterSpec) { c.Server = "https://engine" }, "without scheme, path or credentials"),
		Entry("no server", func(c *infrav1.NovaZVirtClusterSpec) { c.Server = "" }, "server is required: identityRef names a Secret"),
		Entry("a server beside that of an identity", func(c *infrav1.NovaZVirtClusterSpec) { c.IdentityRef.Kind = infrav1.NovaZVirtIdentityKind },
			"server must not be set with a NovaZVirtIdentity: the server comes from the identity"),
		Entry("trust beside that of an identity", func(c *infrav1.NovaZVirtClusterSpec) {
			c.IdentityRef.Kind, c.Server = infrav1.NovaZVirtIdentityKind, ""
			c.TLS = infrav1.Trust{CABundle: "-----BEGIN CERTIFICATE-----"}
		}, "tls must not be set with a NovaZVirtIdentity: it comes from the identity, together with the server"),
		Entry("no identity", func(c *infrav1.NovaZVirtClusterSpec) { c.IdentityRef = infrav1.NovaZVirtIdentityReference{} }, "spec.identityRef"),
		Entry("another identity", func(c *infrav1.NovaZVirtClusterSpec) { c.IdentityRef.Kind = "ConfigMap" }, "spec.identityRef.kind"),
		Entry("two sorts of trust", func(c *infrav1.NovaZVirtClusterSpec) {
			c.TLS = infrav1.Trust{CABundle: "-----BEGIN CERTIFICATE-----", Thumbprint: strings.Repeat("00:", 31) + "00"}
		}, "only one of caBundle and thumbprint can be set"),
		Entry("a bundle without certificates", func(c *infrav1.NovaZVirtClusterSpec) { c.TLS.CABundle = "x" }, "at least one PEM certificate"),
		Entry("a prefix with a colon", func(c *infrav1.NovaZVirtClusterSpec) { c.ProviderIDPrefix = "a://" }, "spec.providerIDPrefix"),
		Entry("two domains of a name", func(c *infrav1.NovaZVirtClusterSpec) {
			c.FailureDomains = []infrav1.NovaZVirtFailureDomain{{Name: "a"}, {Name: "a"}}
		}, "Duplicate value"),
	)

	It("keep the prefix of provider IDs", func(ctx SpecContext) {
		rig := newRig(ctx)
		c := zvirtCluster(rig.Namespace)
		Expect(rig.Client.Create(ctx, c)).To(Succeed())
		c.Spec.ProviderIDPrefix = "ovirt"
		Expect(rig.Client.Update(ctx, c)).To(MatchError(ContainSubstring("nodes already carry it")))
	})
})
