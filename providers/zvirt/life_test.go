package zvirt

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	hypervisortest "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// writes returns the number of requests so far that change the engine.
func (b *bed) writes() map[string]int {
	out := map[string]int{}
	for request, n := range b.engine.Requests() {
		if !strings.HasPrefix(request, "GET ") && !strings.Contains(request, "/sso/") {
			out[request] = n
		}
	}
	return out
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func TestLife(t *testing.T) {
	b := newBed(t)
	b.create("worker-0") // it makes the group and has names looked up
	b.engine.ResetRequests()
	m := b.machine("worker-1", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.Disks.Data = []zvirtv1.NovaZVirtDataDisk{{Name: "etcd", SizeGiB: 8}}
	})
	vm := b.reconcileUntil(b.connector, m, true, "rest")
	created := b.writes()
	b.Expect(created).To(Equal(map[string]int{
		"POST /vms": 1, "POST /vms/{}/nics": 1, "PUT /disks/{}": 1, "POST /vms/{}/diskattachments": 1,
		"POST /clusters/{}/affinitygroups/{}/vms": 1, "POST /vms/{}/start": 1, "PUT /vms/{}": 1,
	}))
	b.Expect(b.engine.Requests()).NotTo(HaveKey("GET /templates"), "names are looked up once")
	t.Logf("requests from create to Ready: %d", sum(created))
	b.Expect(vm.UserData).To(BeFalse())
	b.Expect(vm.OutOfSync).To(BeEmpty())
	b.Expect(vm.Host).To(HavePrefix("host"))
	id := b.vmsNamed("worker-1")[0].ID
	b.Expect(m.Spec.ProviderID).To(Equal("zvirt://" + id))
	b.Expect(vm.ID).To(Equal(id))
	b.Expect(b.diskNames("worker-1-")).To(HaveLen(2))

	b.engine.ResetRequests()
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	t.Logf("requests to delete: %v", b.engine.Requests())
	b.Expect(b.writes()).To(Equal(map[string]int{"POST /vms/{}/stop": 1, "DELETE /vms/{}": 1}))
	b.Expect(b.engine.Requests()["GET /vms/{}/diskattachments"]).To(Equal(1))
	b.Expect(b.engine.Requests()).NotTo(HaveKey("GET /vms/{}"))
	b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())
	b.Eventually(func() []string { return b.diskNames("worker-1-") }).Should(BeEmpty())
}

func TestUserDataIsSetAndRemoved(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1")
	vm := b.reconcileUntil(b.connector, m, false, "rest")
	b.Expect(vm.UserData).To(BeTrue(), "the node has not joined")
	got := b.vmsNamed("worker-1")[0]
	data := string(got.Drive["openstack/latest/user_data"])
	b.Expect(data).To(HavePrefix("#cloud-config\n"), "the engine's own document comes first")
	b.Expect(data).To(HaveSuffix(string(launch.UserData) + "disable_root: true\nssh_pwauth: false\n"))
	b.Expect(b.admin("GET", "/vms/"+got.ID, "")).To(ContainSubstring("write_files"))
	vm = b.reconcileUntil(b.connector, m, true, "rest")
	b.Expect(vm.UserData).To(BeFalse())
	shown := b.admin("GET", "/vms/"+got.ID, "")
	b.Expect(shown).NotTo(ContainSubstring("write_files"))
	b.Expect(shown).NotTo(ContainSubstring("user-data="))
}

func TestIgnition(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1")
	d := b.connect(m)
	b.Expect(d.Create(b.ctx(), m, hypervisor.CreateOptions{UserData: []byte(`{"ignition":{"version":"3.4.0"}}`), Format: "ignition"})).To(Succeed())
	b.reconcileUntil(b.connector, m, false, "rest")
	b.Expect(string(b.vmsNamed("worker-1")[0].Drive["openstack/latest/user_data"])).To(ContainSubstring(`"3.4.0"`))
	b.Expect(string(b.vmsNamed("worker-1")[0].Drive["openstack/latest/user_data"])).NotTo(ContainSubstring("#cloud-config"))
}

func TestInvalidUserData(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1")
	for _, l := range []hypervisor.CreateOptions{
		{UserData: []byte("#!/bin/sh\n")},
		{UserData: []byte("#cloud-config\n" + strings.Repeat("#", 1<<20))},
		{UserData: []byte("not json"), Format: "ignition"},
		{UserData: []byte("x"), Format: "talos"},
	} {
		err := b.connect(m).Create(b.ctx(), m, l)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.InvalidSpecReason))
		b.Expect(hypervisor.IsTerminal(err)).To(BeTrue())
	}
	b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())
}

func TestInterfaces(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.Network.Interfaces = []zvirtv1.NovaZVirtInterface{
			{InterfaceAddressing: infrav1.InterfaceAddressing{MACAddress: "02:AA:00:00:00:01", Nameservers: []string{"10.0.0.2", "10.0.0.3"}, SearchDomains: []string{"a.example", "b.example"}}},
			{Network: "storage/storage", DeviceName: "enp2s0", InterfaceAddressing: infrav1.InterfaceAddressing{
				AddressesFromPools: []ipamv1.IPPoolReference{{Name: "pool"}}, Addresses: []string{"fd00::5/64"}, Gateway6: "fd00::1",
			}},
		}
	})
	l := launch
	l.Interfaces = [][]hypervisor.Address{nil, {{Prefix: netip.MustParsePrefix("10.1.0.5/20"), Gateway: netip.MustParseAddr("10.1.0.1")}}}
	b.Expect(b.connect(m).Create(b.ctx(), m, l)).To(Succeed())
	b.reconcileUntil(b.connector, m, false, "rest")
	vm := b.vmsNamed("worker-1")[0]
	b.Expect(vm.NICs).To(HaveLen(2))
	b.Expect(vm.NICs[0].MAC).To(Equal("02:aa:00:00:00:01"))
	b.Expect([]string{vm.NICs[0].Network, vm.NICs[1].Network}).To(Equal([]string{"ovirtmgmt", "storage"}))
	network := string(vm.Drive["openstack/latest/network_data.json"])
	for _, want := range []string{`"ipv4_dhcp"`, `"10.1.0.5"`, `"255.255.240.0"`, `"10.1.0.1"`, `"fd00::5"`, `"fd00::1"`, `"enp2s0"`, `"eth0"`, `"10.0.0.2"`, `"10.0.0.3"`, `"a.example"`} {
		b.Expect(network).To(ContainSubstring(want))
	}
}

func TestAddressesWithoutEndpoint(t *testing.T) {
	b := newBed(t)
	b.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = namespace, b.cluster.Name
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint, Port: 6443}
	b.Expect(b.objects.Create(b.ctx(), cluster)).To(Succeed())
	m := b.machine("worker-1")
	vm := b.reconcileUntil(b.connector, m, true, "rest")
	b.Expect(vm.Addresses).NotTo(ContainElement(HaveField("Address", endpoint)))
}

func TestHardware(t *testing.T) {
	b := newBed(t)
	host := b.idOf(b.admin("GET", "/hosts?search=name%3Dhost2", ""))
	m := b.create("worker-1", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.Hardware = zvirtv1.NovaZVirtHardware{
			CPUs: 4, CPUTopology: zvirtv1.NovaZVirtCPUTopology{CPUTopology: infrav1.CPUTopology{CoresPerSocket: 2}, ThreadsPerCore: 1},
			CPUType: "Cascadelake-Server", CPUPinningPolicy: zvirtv1.CPUPinningDedicated,
			MemoryMiB: 4096, MemoryReservationMiB: 1024, MaxMemoryMiB: 8192, HugepagesKiB: 2048,
			VMType: zvirtv1.VMTypeHighPerformance, OSType: "debian_9", Firmware: infrav1.FirmwareEFI, Headless: ptr.To(true),
			CustomProperties: []zvirtv1.NovaZVirtCustomProperty{{Name: "viodiskcache", Value: "writethrough"}},
		}
		m.Spec.HighAvailability = zvirtv1.NovaZVirtHighAvailability{Priority: 100, LeaseStorageDomain: "data2"}
		m.Spec.Placement.Hosts = []string{"host2"}
		m.Spec.CloneMode = infrav1.CloneFull
		m.Spec.Disks.Boot = zvirtv1.NovaZVirtBootDisk{SizeGiB: 12, StorageDomain: "data2", Format: zvirtv1.DiskFormatRaw, Provisioning: zvirtv1.ZVirtProvisioningThick}
	})
	vm := b.vmsNamed(m.Name)[0]
	b.Expect(vm.CPUs).To(BeEquivalentTo(4))
	b.Expect(vm.MemoryMiB).To(BeEquivalentTo(4096))
	shown := b.admin("GET", "/vms/"+vm.ID+"?follow=graphics_consoles", "")
	for _, want := range []string{
		"<guaranteed>1073741824</guaranteed>", "<max>8589934592</max>", "<ballooning>false</ballooning>", "<type>high_performance</type>",
		"<type>debian_9</type>", "q35_ovmf", "Cascadelake-Server", "<name>hugepages</name>", "<value>2048</value>", "writethrough",
		"<priority>100</priority>", "<lease>", `<host href="/ovirt-engine/api/hosts/` + host, "<cpu_pinning_policy>dedicated</cpu_pinning_policy>",
	} {
		b.Expect(shown).To(ContainSubstring(want))
	}
	b.Expect(shown).NotTo(ContainSubstring("<protocol>"), "the consoles are removed")
	disks := b.admin("GET", "/vms/"+vm.ID+"/diskattachments?follow=disk", "")
	b.Expect(disks).To(And(ContainSubstring("<format>raw</format>"), ContainSubstring("<provisioned_size>12884901888</provisioned_size>")))
}

func TestPinned(t *testing.T) {
	b := newBed(t)
	for _, host := range []string{"host1", "host2"} {
		b.create("on-"+host, func(m *zvirtv1.NovaZVirtMachine) {
			m.Spec.Placement.Hosts = []string{host}
			m.Spec.MigrationMode = zvirtv1.MigrationPinned
		})
		b.Expect(b.vmsNamed("on-" + host)[0].Host).To(Equal(host))
	}
}

func TestInstanceType(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.Hardware = zvirtv1.NovaZVirtHardware{InstanceType: "Medium"}
	})
	b.Expect(b.vmsNamed(m.Name)[0].MemoryMiB).To(BeEquivalentTo(4096))
	b.Expect(b.vmsNamed(m.Name)[0].CPUs).To(BeEquivalentTo(2))
}

func TestPowerOffIsRepeated(t *testing.T) {
	b := newBed(t)
	b.options.timeouts.PowerOff = 200 * time.Millisecond
	c := b.newConnector()
	m := b.machine("worker-1")
	b.reconcileUntil(c, m, true, "rest")
	const vain = 3
	b.engine.Inject(ovirtsim.Fault{Method: "POST", Path: "vms/*/stop", Work: true, Times: vain})
	began := time.Now()
	b.reconcileUntil(c, markDeleted(m), false, "release")
	took := time.Since(began)
	b.Expect(took).To(BeNumerically(">", vain*b.options.timeouts.PowerOff))
	b.Expect(b.engine.Requests()["POST /vms/{}/stop"]).To(And(
		BeNumerically(">", vain), BeNumerically("<=", 1+took/b.options.timeouts.PowerOff)), "not with each Observe")
}

// The failure of a start is reported until the next action begins, also if that
// changes a part of the VM.
func TestStartFailureEndsWithASync(t *testing.T) {
	b := newBed(t)
	b.addReferences()
	m := b.create("worker-1")
	b.Expect(b.engine.GuestStopped(b.vmsNamed("worker-1")[0].ID)).To(Succeed())
	b.Eventually(func() hypervisor.State { return b.observedState(m) }).Should(Equal(hypervisor.Stopped))
	b.engine.Inject(ovirtsim.Fault{Method: "POST", Path: "vms/*/start", Work: true})
	b.Expect(b.connect(m).Start(b.ctx(), m)).To(Succeed())
	observe := func() hypervisor.VM {
		vm, err := b.connect(m).Observe(b.ctx(), m)
		b.Expect(err).NotTo(HaveOccurred())
		return vm
	}
	b.Eventually(func() error { return observe().LastFailure }).Should(HaveOccurred())
	m.Spec.AffinityLabels = []string{"fast"}
	b.Expect(observe().LastFailure).To(HaveOccurred())
	b.Expect(hypervisortest.Sync(b.ctx(), b.connect(m), m, true)).To(Succeed())
	b.Expect(observe().LastFailure).NotTo(HaveOccurred())
}

// expectChange waits until the key of a machine is delivered.
func (b *bed) expectChange(name string) {
	b.t.Helper()
	b.Eventually(b.connector.Changes()).Should(Receive(Equal(hypervisor.Key{Namespace: namespace, Name: name})))
}
