package machine_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
)

// zvirtMachine returns a valid machine.
func zvirtMachine(namespace string) *zvirtv1.NovaZVirtMachine {
	return &zvirtv1.NovaZVirtMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"},
		Spec: zvirtv1.NovaZVirtMachineSpec{
			Template: zvirtv1.NovaZVirtTemplate{Name: "node"},
			Network:  zvirtv1.NovaZVirtNetwork{Interfaces: []zvirtv1.NovaZVirtInterface{{}}},
		},
	}
}

// zvirtCluster returns a valid cluster.
func zvirtCluster(namespace string) *zvirtv1.NovaZVirtCluster {
	return &zvirtv1.NovaZVirtCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
		Spec: zvirtv1.NovaZVirtClusterSpec{
			ClusterSpec: infrav1.ClusterSpec{Server: "engine.example.test", IdentityRef: infrav1.IdentityReference{Name: "engine"}},
		},
	}
}

var _ = Describe("The rules of a NovaZVirtMachine", func() {
	type spec = zvirtv1.NovaZVirtMachineSpec

	It("accept all fields", func(ctx SpecContext) {
		rig := newRig(ctx)
		m := zvirtMachine(rig.Namespace)
		m.Spec = spec{
			Template:      zvirtv1.NovaZVirtTemplate{Name: "node", Version: 3},
			Placement:     zvirtv1.NovaZVirtPlacement{Datacenter: "dc", ComputeCluster: "c", StorageDomain: "s", Hosts: []string{"h"}},
			CloneMode:     infrav1.CloneFull,
			MigrationMode: zvirtv1.MigrationMigratable,
			Hardware: zvirtv1.NovaZVirtHardware{
				CPUs: 4, CPUTopology: zvirtv1.NovaZVirtCPUTopology{CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}, ThreadsPerCore: 2},
				CPUType: "x", CPUMode: zvirtv1.CPUModeHostPassthrough, CPUPinningPolicy: zvirtv1.CPUPinningResizeAndPinNUMA,
				MemoryMiB: 4096, MemoryReservationMiB: 1024, MaxMemoryMiB: 8192, Ballooning: ptr.To(true), HugepagesKiB: 2048,
				VMType: zvirtv1.VMTypeHighPerformance, OSType: "rhel_9x64", Firmware: infrav1.FirmwareEFI, SecureBoot: ptr.To(true), TrustedPlatformModule: ptr.To(true), Headless: ptr.To(true), SerialConsole: ptr.To(true),
				CustomProperties: []zvirtv1.NovaZVirtCustomProperty{{Name: "a", Value: "b"}},
			},
			Disks: zvirtv1.NovaZVirtDisks{
				Boot:     zvirtv1.NovaZVirtBootDisk{SizeGiB: 20, StorageDomain: "s", Format: zvirtv1.DiskFormatRaw, Provisioning: zvirtv1.ZVirtProvisioningThick},
				Template: []zvirtv1.NovaZVirtTemplateDisk{{Name: "var", NovaZVirtBootDisk: zvirtv1.NovaZVirtBootDisk{SizeGiB: 9}}},
				Data:     []zvirtv1.NovaZVirtDataDisk{{Name: "etcd", SizeGiB: 8, Interface: zvirtv1.DiskInterfaceVirtIO, Bootable: ptr.To(true)}},
			},
			Network: zvirtv1.NovaZVirtNetwork{Interfaces: []zvirtv1.NovaZVirtInterface{{
				Network: "net/net", Type: zvirtv1.ZVirtInterfaceSRIOV, DeviceName: "enp1s0", InterfaceAddressing: infrav1.InterfaceAddressing{
					MACAddress: "02:00:00:00:00:01", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Gateway4: "192.0.2.1", Nameservers: []string{"192.0.2.2"},
				},
			}}},
			HighAvailability: zvirtv1.NovaZVirtHighAvailability{Priority: 1, LeaseStorageDomain: "s"},
			AffinityGroups:   []string{"g"}, AffinityLabels: []string{"l"},
			Tags: []zvirtv1.NovaZVirtTag{{Name: "t"}},
		}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.PowerOff = infrav1.PowerOff{Mode: infrav1.PowerOffSoft}
		m.Spec.ProviderID = "zvirt://one"
		m.Spec.AntiAffinity, m.Spec.Tags = infrav1.AntiAffinityRequired, nil
		Expect(rig.Client.Update(ctx, m)).To(Succeed(), "these can change")
		least := zvirtMachine(rig.Namespace)
		least.Name, least.Spec = "least", spec{Hardware: zvirtv1.NovaZVirtHardware{CPUs: 2}}
		Expect(rig.Client.Create(ctx, least)).To(Succeed(), "template and network come from the cluster")
	})

	DescribeTable("refuse", func(ctx SpecContext, spoil func(*spec), message string) {
		rig := newRig(ctx)
		Expect(rig.Client.Create(ctx, zvirtMachine(rig.Namespace), client.DryRunAll)).To(Succeed())
		bad := zvirtMachine(rig.Namespace)
		spoil(&bad.Spec)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("no name of a template", func(m *spec) { m.Template = zvirtv1.NovaZVirtTemplate{Version: 1} }, "set exactly one of name and id"),
		Entry("a template of two names", func(m *spec) { m.Template.ID = strings.Repeat("0", 36) }, "template"),
		Entry("a version of an ID", func(m *spec) {
			m.Template = zvirtv1.NovaZVirtTemplate{ID: "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11", Version: 1}
		}, "version belongs to name"),
		Entry("an instance type and memory", func(m *spec) {
			m.Hardware = zvirtv1.NovaZVirtHardware{InstanceType: "Small", MemoryMiB: 1024}
		}, "an instanceType has CPUs and memory"),
		Entry("an instance type and cores", func(m *spec) {
			m.Hardware = zvirtv1.NovaZVirtHardware{InstanceType: "Small", CPUs: 1}
		}, "an instanceType has CPUs and memory"),
		Entry("more guaranteed than there is", func(m *spec) {
			m.Hardware = zvirtv1.NovaZVirtHardware{MemoryMiB: 1024, MemoryReservationMiB: 2048}
		}, "memoryReservationMiB needs memoryMiB and cannot be more than it"),
		Entry("a maximum below", func(m *spec) {
			m.Hardware = zvirtv1.NovaZVirtHardware{MemoryMiB: 1024, MaxMemoryMiB: 512}
		}, "maxMemoryMiB needs memoryMiB and cannot be less than it"),
		Entry("odd huge pages", func(m *spec) { m.Hardware = zvirtv1.NovaZVirtHardware{HugepagesKiB: 4096} }, "hugepagesKiB"),
		Entry("huge pages as a property", func(m *spec) {
			m.Hardware.CustomProperties = []zvirtv1.NovaZVirtCustomProperty{{Name: "hugepages", Value: "2048"}}
		}, "use hugepagesKiB"),
		Entry("a highly available VM that cannot move", func(m *spec) {
			m.HighAvailability.Priority = 1
			m.MigrationMode = zvirtv1.MigrationPinned
		}, "a highly available VM must be migratable"),
		Entry("a passed device and high availability", func(m *spec) {
			m.HighAvailability.Priority = 1
			m.Hardware.PCIDevices = []zvirtv1.NovaZVirtPCIDevice{{VendorID: 0x10de, DeviceID: 0x1eb8}}
		}, "a VM with pciDevices runs on one host only"),
		Entry("a raw boot disk of a linked clone", func(m *spec) {
			m.CloneMode, m.Disks.Boot.Format = infrav1.CloneLinked, zvirtv1.DiskFormatRaw
		}, "a disk of a linked clone is thin and COW"),
		Entry("a thick disk of a linked clone", func(m *spec) {
			m.CloneMode = infrav1.CloneLinked
			m.Disks.Template = []zvirtv1.NovaZVirtTemplateDisk{{Name: "a", NovaZVirtBootDisk: zvirtv1.NovaZVirtBootDisk{Provisioning: zvirtv1.ZVirtProvisioningThick}}}
		}, "a disk of a linked clone is thin and COW"),
		Entry("a thick COW disk", func(m *spec) {
			m.Disks.Data = []zvirtv1.NovaZVirtDataDisk{{Name: "a", SizeGiB: 1, Format: zvirtv1.DiskFormatCOW, Provisioning: zvirtv1.ZVirtProvisioningThick}}
		}, "a COW disk is thin"),
		Entry("CPUs that do not fit their topology", func(m *spec) {
			m.Hardware.CPUs = 6
			m.Hardware.CPUTopology = zvirtv1.NovaZVirtCPUTopology{CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}, ThreadsPerCore: 2}
		}, "a multiple of cpuTopology.coresPerSocket times cpuTopology.threadsPerCore"),
		Entry("secure boot without EFI", func(m *spec) { m.Hardware.SecureBoot = ptr.To(true) }, "secureBoot needs the firmware EFI"),
		Entry("two disks to boot from", func(m *spec) {
			m.Disks.Data = []zvirtv1.NovaZVirtDataDisk{{Name: "a", SizeGiB: 1, Bootable: ptr.To(true)}, {Name: "b", SizeGiB: 1, Bootable: ptr.To(true)}}
		}, "only one can be bootable"),
		Entry("two disks of a name", func(m *spec) {
			m.Disks.Data = []zvirtv1.NovaZVirtDataDisk{{Name: "a", SizeGiB: 1}, {Name: "a", SizeGiB: 1}}
		}, "Duplicate value"),
		Entry("a TPM without UEFI", func(m *spec) {
			m.Hardware = zvirtv1.NovaZVirtHardware{Firmware: infrav1.FirmwareBIOS, TrustedPlatformModule: ptr.To(true)}
		}, "trustedPlatformModule needs the firmware EFI"),
		Entry("an unknown kind of network card", func(m *spec) { m.Network.Interfaces[0].Type = "vmxnet3" }, "interfaces[0].type"),
		Entry("a gateway of a failure domain without an address", func(m *spec) {
			m.Network.Interfaces[0].FailureDomains = []infrav1.InterfaceFailureDomain{{Name: "a", Gateway4: "192.0.2.1"}}
		}, "gateway4 needs addressesFromPools"),
		Entry("a name server of a failure domain that is no address", func(m *spec) {
			m.Network.Interfaces[0].FailureDomains = []infrav1.InterfaceFailureDomain{{Name: "a", Nameservers: []string{"ns.example.com"}}}
		}, "a name server must be an IP address"),
		Entry("two addresses of a family", func(m *spec) {
			m.Network.Interfaces[0].Addresses = []string{"192.0.2.10/24", "192.0.2.11/24"}
		}, "one address of each family"),
		Entry("unknown strictness", func(m *spec) { m.AntiAffinity = "hard" }, "antiAffinity"),
	)

	// An engine can configure neither of them.
	It("have no fields for routes and the MTU", func(ctx SpecContext) {
		rig := newRig(ctx)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(zvirtMachine(rig.Namespace))
		Expect(err).NotTo(HaveOccurred())
		m := &unstructured.Unstructured{Object: object}
		m.SetGroupVersionKind(infrav1.GroupVersion.WithKind("NovaZVirtMachine"))
		Expect(rig.Client.Create(ctx, m.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())
		routes := []any{map[string]any{"to": "198.51.100.0/24", "via": "192.0.2.1"}}
		Expect(unstructured.SetNestedSlice(m.Object, []any{map[string]any{
			"network": "net/net", "routes": routes, "mtu": int64(1400),
			"failureDomains": []any{map[string]any{"name": "a", "routes": routes}},
		}}, "spec", "network", "interfaces")).To(Succeed())
		Expect(rig.Client.Create(ctx, m, client.FieldValidation(metav1.FieldValidationStrict))).To(MatchError(And(
			ContainSubstring(`unknown field "spec.network.interfaces[0].routes"`),
			ContainSubstring(`unknown field "spec.network.interfaces[0].mtu"`),
			ContainSubstring(`unknown field "spec.network.interfaces[0].failureDomains[0].routes"`))))
	})

	DescribeTable("refuse to change", func(ctx SpecContext, change func(*spec), message string) {
		rig := newRig(ctx)
		m := zvirtMachine(rig.Namespace)
		m.Spec.Tags = []zvirtv1.NovaZVirtTag{{Name: "a"}}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.ProviderID = "zvirt://one"
		Expect(rig.Client.Update(ctx, m)).To(Succeed())
		change(&m.Spec)
		Expect(rig.Client.Update(ctx, m)).To(MatchError(ContainSubstring(message)))
	},
		Entry("the template", func(m *spec) { m.Template.Name = "other" }, "spec is immutable"),
		Entry("the placement", func(m *spec) { m.Placement.ComputeCluster = "other" }, "spec is immutable"),
		Entry("the migration mode", func(m *spec) { m.MigrationMode = zvirtv1.MigrationPinned }, "spec is immutable"),
		Entry("the hardware", func(m *spec) { m.Hardware.MemoryMiB = 1024 }, "spec is immutable"),
		Entry("the disks", func(m *spec) { m.Disks.Boot.SizeGiB = 99 }, "spec is immutable"),
		Entry("the network", func(m *spec) { m.Network.Interfaces[0].Network = "a/b" }, "spec is immutable"),
		Entry("the availability", func(m *spec) { m.HighAvailability.Priority = 1 }, "spec is immutable"),
		Entry("the naming", func(m *spec) { m.Naming.Template = "vm-{{ .machine.name }}" }, "spec is immutable"),
		Entry("the clone mode", func(m *spec) { m.CloneMode = infrav1.CloneLinked }, "spec is immutable"),
		Entry("the affinity groups", func(m *spec) { m.AffinityGroups = []string{"g"} }, "spec is immutable"),
		Entry("the provider ID", func(m *spec) { m.ProviderID = "zvirt://two" }, "providerID cannot change once it is set"),
		Entry("the provider ID to nothing", func(m *spec) { m.ProviderID = "" }, "providerID cannot change once it is set"),
	)

	DescribeTable("refuse in a template", func(ctx SpecContext, spoil func(*spec), message string) {
		rig := newRig(ctx)
		template := &zvirtv1.NovaZVirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "workers"}}
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
	DescribeTable("refuse", func(ctx SpecContext, spoil func(*zvirtv1.NovaZVirtClusterSpec), message string) {
		rig := newRig(ctx)
		Expect(rig.Client.Create(ctx, zvirtCluster(rig.Namespace), client.DryRunAll)).To(Succeed())
		bad := zvirtCluster(rig.Namespace)
		spoil(&bad.Spec)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a server with a scheme", func(c *zvirtv1.NovaZVirtClusterSpec) { c.Server = "https://engine" }, "without scheme, path or credentials"),
		Entry("no server", func(c *zvirtv1.NovaZVirtClusterSpec) { c.Server = "" }, "server is required: the credentials are in a Secret"),
		Entry("a server in addition to an identity", func(c *zvirtv1.NovaZVirtClusterSpec) { c.IdentityRef.Kind = zvirtv1.NovaZVirtIdentityKind },
			"server must not be set with a NovaZVirtIdentity: the server comes from the identity"),
		Entry("trust in addition to an identity", func(c *zvirtv1.NovaZVirtClusterSpec) {
			c.IdentityRef.Kind, c.Server = zvirtv1.NovaZVirtIdentityKind, ""
			c.TLS = infrav1.Trust{CABundle: "-----BEGIN CERTIFICATE-----"}
		}, "tls must not be set with a NovaZVirtIdentity: it comes from the identity, together with the server"),
		Entry("an identity without name", func(c *zvirtv1.NovaZVirtClusterSpec) { c.IdentityRef = infrav1.IdentityReference{Kind: "Secret"} }, "spec.identityRef.name"),
		Entry("another identity", func(c *zvirtv1.NovaZVirtClusterSpec) { c.IdentityRef.Kind = "ConfigMap" }, "spec.identityRef.kind"),
		Entry("two kinds of trust", func(c *zvirtv1.NovaZVirtClusterSpec) {
			c.TLS = infrav1.Trust{CABundle: "-----BEGIN CERTIFICATE-----", Thumbprint: strings.Repeat("00:", 31) + "00"}
		}, "only one of caBundle and thumbprint can be set"),
		Entry("a bundle without certificates", func(c *zvirtv1.NovaZVirtClusterSpec) { c.TLS.CABundle = "x" }, "at least one PEM certificate"),
		Entry("a prefix with a colon", func(c *zvirtv1.NovaZVirtClusterSpec) { c.ProviderIDPrefix = "a://" }, "spec.providerIDPrefix"),
		Entry("two domains of a name", func(c *zvirtv1.NovaZVirtClusterSpec) {
			c.FailureDomains = []zvirtv1.NovaZVirtFailureDomain{{FailureDomain: infrav1.FailureDomain{Name: "a"}}, {FailureDomain: infrav1.FailureDomain{Name: "a"}}}
		}, "Duplicate value"),
	)

	It("keep the prefix of provider IDs", func(ctx SpecContext) {
		rig := newRig(ctx)
		c := zvirtCluster(rig.Namespace)
		Expect(rig.Client.Create(ctx, c)).To(Succeed())
		c.Spec.ProviderIDPrefix = "ovirt"
		Expect(rig.Client.Update(ctx, c)).To(MatchError(ContainSubstring("nodes already have it")))
	})
})
