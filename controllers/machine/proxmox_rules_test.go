package machine_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// proxmoxMachine returns a valid machine.
func proxmoxMachine(namespace string) *proxmoxv1.NovaProxmoxMachine {
	return &proxmoxv1.NovaProxmoxMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"},
		Spec: proxmoxv1.NovaProxmoxMachineSpec{
			Template: proxmoxv1.NovaProxmoxTemplate{Name: "node"},
			Network:  proxmoxv1.NovaProxmoxNetwork{Interfaces: []proxmoxv1.NovaProxmoxInterface{{}}},
		},
	}
}

// proxmoxCluster returns a valid cluster.
func proxmoxCluster(namespace string) *proxmoxv1.NovaProxmoxCluster {
	return &proxmoxv1.NovaProxmoxCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
		Spec: proxmoxv1.NovaProxmoxClusterSpec{
			ClusterSpec: infrav1.ClusterSpec{Server: "pve.example.test", IdentityRef: infrav1.IdentityReference{Name: "pve"}},
		},
	}
}

var _ = Describe("The rules of a NovaProxmoxMachine", func() {
	type spec = proxmoxv1.NovaProxmoxMachineSpec

	It("accept all fields", func(ctx SpecContext) {
		rig := newRig(ctx)
		m := proxmoxMachine(rig.Namespace)
		options := proxmoxv1.NovaProxmoxDiskOptions{
			Cache: "WriteBack", Discard: ptr.To(true), IOThread: ptr.To(true), SSD: ptr.To(true), Backup: ptr.To(false),
		}
		m.Spec = spec{
			Template:  proxmoxv1.NovaProxmoxTemplate{Tag: "golden"},
			CloneMode: infrav1.CloneFull,
			Placement: proxmoxv1.NovaProxmoxPlacement{Nodes: []string{"pve1"}, Storage: "ceph", BootstrapStorage: "local", Pool: "tenants"},
			Hardware: proxmoxv1.NovaProxmoxHardware{
				CPUs: 4, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}, CPUType: "x86-64-v2-AES", NUMA: ptr.To(true),
				MemoryMiB: 4096, MinMemoryMiB: 1024, MachineType: "q35", Firmware: infrav1.FirmwareEFI, SecureBoot: ptr.To(true),
				TrustedPlatformModule: ptr.To(true), PCIDevices: []proxmoxv1.NovaProxmoxPCIDevice{{Mapping: "gpu", PCIe: ptr.To(true)}},
			},
			Disks: proxmoxv1.NovaProxmoxDisks{
				Boot: proxmoxv1.NovaProxmoxBootDisk{SizeGiB: 20, NovaProxmoxDiskOptions: options},
				Data: []proxmoxv1.NovaProxmoxDataDisk{{Name: "etcd", SizeGiB: 8, Storage: "ceph", NovaProxmoxDiskOptions: options}},
			},
			Network: proxmoxv1.NovaProxmoxNetwork{Interfaces: []proxmoxv1.NovaProxmoxInterface{{
				Network: "vmbr0", VLAN: 7, Type: "VirtIO", MTU: 1400, Firewall: ptr.To(true), DeviceName: "eth0", InterfaceAddressing: infrav1.InterfaceAddressing{
					MACAddress: "02:00:00:00:00:01", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Gateway4: "192.0.2.1", Nameservers: []string{"192.0.2.2"},
				},
			}}},
			StartOnBoot: ptr.To(true), Tags: []string{"team-a"},
		}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.PowerOff = infrav1.PowerOff{Mode: infrav1.PowerOffSoft}
		m.Spec.ProviderID = "proxmox://one"
		m.Spec.AntiAffinity, m.Spec.Tags = infrav1.AntiAffinityRequired, nil
		Expect(rig.Client.Update(ctx, m)).To(Succeed(), "these can change")
		least := proxmoxMachine(rig.Namespace)
		least.Name, least.Spec = "least", spec{Hardware: proxmoxv1.NovaProxmoxHardware{CPUs: 2}}
		Expect(rig.Client.Create(ctx, least)).To(Succeed(), "template and network come from the cluster")
	})

	DescribeTable("refuse", func(ctx SpecContext, spoil func(*spec), message string) {
		rig := newRig(ctx)
		Expect(rig.Client.Create(ctx, proxmoxMachine(rig.Namespace), client.DryRunAll)).To(Succeed())
		bad := proxmoxMachine(rig.Namespace)
		spoil(&bad.Spec)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a template by name and tag", func(m *spec) { m.Template.Tag = "golden" }, "set exactly one of name, id and tag"),
		Entry("a template with an ID that no VM has", func(m *spec) { m.Template = proxmoxv1.NovaProxmoxTemplate{ID: 99} }, "template.id"),
		Entry("CPUs that do not fit their topology", func(m *spec) {
			m.Hardware = proxmoxv1.NovaProxmoxHardware{CPUs: 3, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}}
		}, "a multiple of cpuTopology.coresPerSocket"),
		Entry("a topology without CPUs", func(m *spec) {
			m.Hardware = proxmoxv1.NovaProxmoxHardware{MemoryMiB: 1024, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}}
		}, "cpus must be set"),
		Entry("more memory at least than there is", func(m *spec) {
			m.Hardware = proxmoxv1.NovaProxmoxHardware{MemoryMiB: 1024, MinMemoryMiB: 2048}
		}, "minMemoryMiB needs memoryMiB and cannot be more than it"),
		Entry("secure boot without EFI", func(m *spec) { m.Hardware.SecureBoot = ptr.To(true) }, "secureBoot needs the firmware EFI"),
		Entry("a TPM with a BIOS", func(m *spec) {
			m.Hardware = proxmoxv1.NovaProxmoxHardware{Firmware: infrav1.FirmwareBIOS, TrustedPlatformModule: ptr.To(true)}
		}, "trustedPlatformModule needs the firmware EFI"),
		Entry("an option in the CPU type", func(m *spec) { m.Hardware.CPUType = "host,flags=+aes" }, "hardware.cpuType"),
		Entry("an unknown machine type", func(m *spec) { m.Hardware.MachineType = "microvm" }, "hardware.machineType"),
		Entry("a PCI device without a mapping", func(m *spec) {
			m.Hardware.PCIDevices = []proxmoxv1.NovaProxmoxPCIDevice{{Mapping: "0000:01:00.0"}}
		}, "pciDevices[0].mapping"),
		Entry("two disks of a name", func(m *spec) {
			m.Disks.Data = []proxmoxv1.NovaProxmoxDataDisk{{Name: "a", SizeGiB: 1}, {Name: "a", SizeGiB: 1}}
		}, "Duplicate value"),
		Entry("an unknown cache mode", func(m *spec) { m.Disks.Boot.Cache = "writeback" }, "disks.boot.cache"),
		Entry("a VLAN that does not exist", func(m *spec) { m.Network.Interfaces[0].VLAN = 4095 }, "interfaces[0].vlan"),
		Entry("an unknown kind of network card", func(m *spec) { m.Network.Interfaces[0].Type = "virtio" }, "interfaces[0].type"),
		Entry("a tag in capital letters", func(m *spec) { m.Tags = []string{"Team"} }, "a tag has lower-case letters"),
		Entry("a tag of the driver", func(m *spec) { m.Tags = []string{"nova-x"} }, "tags that begin with nova- belong to the driver"),
		Entry("a name that is no DNS name", func(m *spec) { m.Naming.Template = "vm_{{ .machine.name }}" }, "cannot have an underscore"),
		Entry("unknown strictness", func(m *spec) { m.AntiAffinity = "hard" }, "antiAffinity"),
	)

	DescribeTable("refuse to change", func(ctx SpecContext, change func(*spec), message string) {
		rig := newRig(ctx)
		m := proxmoxMachine(rig.Namespace)
		m.Spec.Tags = []string{"a"}
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		m.Spec.ProviderID = "proxmox://one"
		Expect(rig.Client.Update(ctx, m)).To(Succeed())
		change(&m.Spec)
		Expect(rig.Client.Update(ctx, m)).To(MatchError(ContainSubstring(message)))
	},
		Entry("the template", func(m *spec) { m.Template.Name = "other" }, "spec is immutable"),
		Entry("the placement", func(m *spec) { m.Placement.Pool = "other" }, "spec is immutable"),
		Entry("the hardware", func(m *spec) { m.Hardware.MemoryMiB = 1024 }, "spec is immutable"),
		Entry("the disks", func(m *spec) { m.Disks.Boot.SizeGiB = 99 }, "spec is immutable"),
		Entry("the network", func(m *spec) { m.Network.Interfaces[0].Network = "vmbr1" }, "spec is immutable"),
		Entry("the naming", func(m *spec) { m.Naming.Template = "vm-{{ .machine.name }}" }, "spec is immutable"),
		Entry("the clone mode", func(m *spec) { m.CloneMode = infrav1.CloneLinked }, "spec is immutable"),
		Entry("the start with the node", func(m *spec) { m.StartOnBoot = ptr.To(true) }, "spec is immutable"),
		Entry("the provider ID", func(m *spec) { m.ProviderID = "proxmox://two" }, "providerID cannot change once it is set"),
		Entry("the provider ID to nothing", func(m *spec) { m.ProviderID = "" }, "providerID cannot change once it is set"),
	)

	DescribeTable("refuse in a template", func(ctx SpecContext, spoil func(*spec), message string) {
		rig := newRig(ctx)
		template := &proxmoxv1.NovaProxmoxMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "workers"}}
		template.Spec.Template.Spec = proxmoxMachine(rig.Namespace).Spec
		template.Spec.Template.Spec.Network.Interfaces[0].AddressesFromPools = []ipamv1.IPPoolReference{{APIGroup: "ipam.example.test", Kind: "Pool", Name: "p"}}
		Expect(rig.Client.Create(ctx, template.DeepCopy(), client.DryRunAll)).To(Succeed())
		spoil(&template.Spec.Template.Spec)
		Expect(rig.Client.Create(ctx, template)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a provider ID", func(m *spec) { m.ProviderID = "proxmox://one" }, "providerID belongs to one machine"),
		Entry("an address", func(m *spec) { m.Network.Interfaces[0].Addresses = []string{"192.0.2.10/24"} }, "belong to one machine"),
		Entry("a hardware address", func(m *spec) { m.Network.Interfaces[0].MACAddress = "02:00:00:00:00:01" }, "belong to one machine"),
	)

	It("refuse a name that is no host name", func(ctx SpecContext) {
		rig := newRig(ctx)
		m := proxmoxMachine(rig.Namespace)
		m.Name = strings.Repeat("a", 64)
		Expect(rig.Client.Create(ctx, m)).To(MatchError(ContainSubstring("can have at most 63 characters")))
	})
})

var _ = Describe("The rules of a NovaProxmoxCluster", func() {
	type spec = proxmoxv1.NovaProxmoxClusterSpec

	It("accept all fields", func(ctx SpecContext) {
		rig := newRig(ctx)
		c := proxmoxCluster(rig.Namespace)
		c.Spec.AdditionalServers = []string{"pve2.example.test", "192.0.2.3:8006"}
		c.Spec.TLS = infrav1.Trust{CABundle: "-----BEGIN CERTIFICATE-----"}
		c.Spec.Template, c.Spec.Network = proxmoxv1.NovaProxmoxTemplate{ID: 9000}, "vmbr0"
		c.Spec.VMIDs = proxmoxv1.NovaProxmoxVMIDRange{Start: 5000, End: 5999}
		c.Spec.ProviderIDPrefix = "pve"
		c.Spec.FailureDomains = []proxmoxv1.NovaProxmoxFailureDomain{{
			FailureDomain: infrav1.FailureDomain{Name: "a"}, Placement: proxmoxv1.NovaProxmoxPlacement{Nodes: []string{"pve1", "pve2"}},
			Template: proxmoxv1.NovaProxmoxTemplate{Tag: "golden"},
		}}
		Expect(rig.Client.Create(ctx, c)).To(Succeed())
		c.Spec.AdditionalServers, c.Spec.FailureDomains = nil, nil
		Expect(rig.Client.Update(ctx, c)).To(Succeed(), "these can change")
	})

	DescribeTable("refuse", func(ctx SpecContext, spoil func(*spec), message string) {
		rig := newRig(ctx)
		Expect(rig.Client.Create(ctx, proxmoxCluster(rig.Namespace), client.DryRunAll)).To(Succeed())
		bad := proxmoxCluster(rig.Namespace)
		spoil(&bad.Spec)
		Expect(rig.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(message)))
	},
		Entry("no server", func(c *spec) { c.Server = "" }, "server is required"),
		Entry("a server with an identity", func(c *spec) {
			c.IdentityRef = infrav1.IdentityReference{Kind: proxmoxv1.NovaProxmoxIdentityKind, Name: "shared"}
		}, "the server comes from the identity"),
		Entry("an identity of another hypervisor", func(c *spec) { c.IdentityRef.Kind = "NovaZVirtIdentity" }, "identityRef.kind must be Secret or NovaProxmoxIdentity"),
		Entry("more servers without the first one", func(c *spec) {
			c.Server, c.IdentityRef.Kind, c.AdditionalServers = "", proxmoxv1.NovaProxmoxIdentityKind, []string{"pve2.example.test"}
		}, "additionalServers belong to server"),
		Entry("one thumbprint for several servers", func(c *spec) {
			c.AdditionalServers, c.TLS = []string{"pve2.example.test"}, infrav1.Trust{Thumbprint: strings.Repeat("AB:", 31) + "AB"}
		}, "a thumbprint is of the certificate of one node"),
		Entry("credentials in a server", func(c *spec) { c.AdditionalServers = []string{"nova:secret@pve2.example.test"} }, "a server is a host name or address"),
		Entry("a short range of IDs", func(c *spec) { c.VMIDs = proxmoxv1.NovaProxmoxVMIDRange{Start: 5000, End: 5098} }, "the range must have at least 100 IDs"),
		Entry("a range that ends before it starts", func(c *spec) { c.VMIDs = proxmoxv1.NovaProxmoxVMIDRange{Start: 5000, End: 200} }, "the range must have at least 100 IDs"),
		Entry("IDs that Proxmox VE reserves", func(c *spec) { c.VMIDs = proxmoxv1.NovaProxmoxVMIDRange{Start: 99, End: 300} }, "vmIDs.start"),
		Entry("two failure domains of a name", func(c *spec) {
			domain := proxmoxv1.NovaProxmoxFailureDomain{FailureDomain: infrav1.FailureDomain{Name: "a"}}
			c.FailureDomains = []proxmoxv1.NovaProxmoxFailureDomain{domain, domain}
		}, "Duplicate value"),
		Entry("a scheme that is none", func(c *spec) { c.ProviderIDPrefix = "Proxmox VE" }, "providerIDPrefix"),
	)

	DescribeTable("refuse to change", func(ctx SpecContext, change func(*spec), message string) {
		rig := newRig(ctx)
		c := proxmoxCluster(rig.Namespace)
		Expect(rig.Client.Create(ctx, c)).To(Succeed())
		change(&c.Spec)
		Expect(rig.Client.Update(ctx, c)).To(MatchError(ContainSubstring(message)))
	},
		Entry("the scheme of provider IDs", func(c *spec) { c.ProviderIDPrefix = "pve" }, "providerIDPrefix cannot change"),
		Entry("the range of IDs", func(c *spec) { c.VMIDs = proxmoxv1.NovaProxmoxVMIDRange{Start: 5000, End: 5999} }, "vmIDs cannot change"),
	)
})
