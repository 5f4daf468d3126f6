package plan

import (
	"encoding/xml"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

var id = uuid.MustParse("1f3a9c2e-5b1c-5c0e-9d3c-6d3d4c0f4e11")

// machine returns a machine with one interface.
func machine(change ...func(*zvirtv1.NovaZVirtMachineSpec)) *zvirtv1.NovaZVirtMachine {
	m := &zvirtv1.NovaZVirtMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "worker-1", Labels: map[string]string{clusterv1.ClusterNameLabel: "tenant"},
	}}
	m.Spec.Template.Name = "node"
	m.Spec.Network.Interfaces = []zvirtv1.NovaZVirtInterface{{}}
	for _, f := range change {
		f(&m.Spec)
	}
	return m
}

func TestMark(t *testing.T) {
	for _, m := range []Mark{
		{ID: id},
		{ID: id, Zone: "a"},
		{ID: id, UserDataFormat: CloudConfig},
		{ID: id, Machine: "worker-1"},
		{ID: id, Devices: "host/pci_0000_03_00_0,pci_0000_04_00_0"},
		{ID: id, Zone: "eu west/1&x=y", UserDataFormat: Ignition},
	} {
		got, ok := ReadMark(" " + m.String() + "\n")
		if !ok || got != m || OwnerOf(m.String()) != id.String() {
			t.Errorf("%s is read as %+v, %t", m, got, ok)
		}
		if !strings.HasPrefix(m.String(), MarkPrefix) {
			t.Errorf("%s cannot be found by a search", m)
		}
	}
	for _, text := range []string{"", "mine", "nova-machine/", "nova-machine/x", id.String(), "x nova-machine/" + id.String(), "http://a/" + (Mark{ID: id}).String(), "%zz"} {
		if m, ok := ReadMark(text); ok || OwnerOf(text) != "" {
			t.Errorf("%q is read as %+v", text, m)
		}
	}
}

func TestPlacementOf(t *testing.T) {
	cluster := &zvirtv1.NovaZVirtClusterSpec{
		Placement:   zvirtv1.NovaZVirtPlacement{Datacenter: "dc", ComputeCluster: "c", StorageDomain: "s", Hosts: []string{"h"}},
		ClusterSpec: infrav1.ClusterSpec{Network: "net/net"},
		FailureDomains: []zvirtv1.NovaZVirtFailureDomain{
			{FailureDomain: infrav1.FailureDomain{Name: "empty"}},
			{
				FailureDomain: infrav1.FailureDomain{Name: "full", Networks: []infrav1.FailureDomainNetwork{{Interface: ptr.To[int32](0), Network: "net2/net2", Nameservers: []string{"10.0.0.3"}}}},
				Placement:     zvirtv1.NovaZVirtPlacement{ComputeCluster: "c2", Hosts: []string{"h2"}},
				Template:      zvirtv1.NovaZVirtTemplate{ID: "t2"}, AffinityLabel: "l2",
			},
		},
	}
	own := machine(func(m *zvirtv1.NovaZVirtMachineSpec) {
		m.Placement = zvirtv1.NovaZVirtPlacement{ComputeCluster: "own", StorageDomain: "own"}
		m.Network.Interfaces = []zvirtv1.NovaZVirtInterface{{Network: "own/own"}, {}}
		m.AffinityLabels = []string{"l"}
	})
	for name, tt := range map[string]struct {
		machine *zvirtv1.NovaZVirtMachine
		zone    string
		want    string
	}{
		"the cluster's":   {machine(), "", "dc c s h node [net/net] []"},
		"the machine's":   {own, "", "dc own own h node [own/own net/net] [l]"},
		"an empty domain": {own, "empty", "dc own own h node [own/own net/net] [l]"},
		"a full domain":   {own, "full", "dc c2 own h2 t2 [net2/net2 net/net] [l l2]"},
	} {
		at, err := PlacementOf(cluster, &tt.machine.Spec, tt.zone)
		got := strings.Join([]string{
			at.Datacenter, at.ComputeCluster, at.StorageDomain, strings.Join(at.Hosts, " "), at.Template.Name + at.Template.ID,
			"[" + strings.Join(at.Networks(), " ") + "]", "[" + strings.Join(at.Labels, " ") + "]",
		}, " ")
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, tt.want)
		}
	}
	if _, err := PlacementOf(cluster, &own.Spec, "nowhere"); hypervisor.ReasonFor(err, "") != infrav1.PlacementNotFoundReason {
		t.Errorf("an unknown domain: %v", err)
	}
	if _, err := PlacementOf(&zvirtv1.NovaZVirtClusterSpec{}, &own.Spec, ""); !hypervisor.IsTerminal(err) {
		t.Errorf("an interface without a profile: %v", err)
	}
	if len(own.Spec.AffinityLabels) != 1 {
		t.Error("the spec was changed")
	}
}

func TestState(t *testing.T) {
	vm := func(status string) ovirt.Snapshot {
		return ovirt.Snapshot{Detailed: true, VM: &ovirt.VM{Status: status}}
	}
	locked := vm("down")
	locked.VM.DiskAttachments = &ovirt.DiskAttachments{Attachments: []ovirt.DiskAttachment{{Disk: &ovirt.Disk{Status: "locked"}}}}
	busy := vm("up")
	busy.Busy = "Powering off"
	for name, tt := range map[string]struct {
		view ovirt.Snapshot
		want hypervisor.State
	}{
		"no VM":           {ovirt.Snapshot{}, hypervisor.Absent},
		"powering off":    {busy, hypervisor.Busy},
		"result unknown":  {ovirt.Snapshot{Busy: "Finding out"}, hypervisor.Busy},
		"being copied":    {vm("image_locked"), hypervisor.Busy},
		"going down":      {vm("powering_down"), hypervisor.Busy},
		"saving":          {vm("saving_state"), hypervisor.Busy},
		"without details": {ovirt.Snapshot{VM: &ovirt.VM{Status: "down"}}, hypervisor.Busy},
		"disk locked":     {locked, hypervisor.Busy},
		"down":            {vm("down"), hypervisor.Stopped},
		"suspended":       {vm("suspended"), hypervisor.Stopped},
		"launching":       {vm("wait_for_launch"), hypervisor.Running},
		"booting":         {vm("powering_up"), hypervisor.Running},
		"up":              {vm("up"), hypervisor.Running},
		"migrating":       {vm("migrating"), hypervisor.Running},
		"paused":          {vm("paused"), hypervisor.Running},
		"not responding":  {vm("not_responding"), hypervisor.Running},
		"unknown":         {vm("unknown"), ""},
		"ambiguous":       {ovirt.Snapshot{Ambiguous: []*ovirt.VM{{ID: "1", Name: "renamed"}}}, ""},
	} {
		got, message, err := State(tt.view, false)
		if got != tt.want || (got == hypervisor.Busy || name == "paused" || name == "not responding") != (message != "") || (got == "") != (err != nil) {
			t.Errorf("%s: got %s, %q, %v; want %s", name, got, message, err, tt.want)
		}
		if name == "going down" {
			tt.want = hypervisor.Running
		}
		if got, _, _ := State(tt.view, true); got != tt.want {
			t.Errorf("%s, in deletion: got %s; want %s", name, got, tt.want)
		}
	}
}

func TestAmbiguousMessage(t *testing.T) {
	for want, vms := range map[string][]*ovirt.VM{
		"renamed (1). Rename":  {{ID: "1", Name: "renamed"}},
		"a (1), b (2). Rename": {{ID: "1", Name: "a"}, {ID: "2", Name: "b"}},
		"a (1), a (2). Clear":  {{ID: "1", Name: "a"}, {ID: "2", Name: "a"}},
	} {
		_, _, err := State(ovirt.Snapshot{Ambiguous: vms}, true)
		if hypervisor.ReasonFor(err, "") != infrav1.VMAmbiguousReason || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	mac := func(s string) *ovirt.MAC { return &ovirt.MAC{Address: s} }
	device := func(name, hw string, ips ...string) ovirt.ReportedDevice {
		d := ovirt.ReportedDevice{Name: name, MAC: mac(hw)}
		for _, ip := range ips {
			d.IPs = append(d.IPs, ovirt.IP{Address: ip})
		}
		return d
	}
	vm := &ovirt.VM{
		NICs: &ovirt.NICs{NICs: []ovirt.NIC{{Name: "nic2", MAC: mac("56:00:00:00:00:02")}, {Name: "nic1", MAC: mac("56:00:00:00:00:0a")}}},
		ReportedDevices: &ovirt.ReportedDevices{Devices: []ovirt.ReportedDevice{
			device("cni0", "0a:58:00:00:00:01", "10.244.0.1"),
			device("lo", "00:00:00:00:00:00", "127.0.0.1"),
			device("eth1", "56:00:00:00:00:02", "10.1.0.5", "not an address"),
			device("eth0", "56:00:00:00:00:0A", "fe80::1", "10.0.0.100", "10.0.0.5", "fd00::5", "10.0.0.5"),
			{Name: "nameless", IPs: []ovirt.IP{{Address: "10.9.9.9"}}},
		}},
	}
	var got []string
	for _, a := range Addresses("worker-1", vm, "10.0.0.100") {
		got = append(got, string(a.Type)+"="+a.Address)
	}
	want := "InternalIP=10.0.0.5 InternalIP=fd00::5 InternalIP=10.1.0.5 Hostname=worker-1 InternalDNS=worker-1"
	if strings.Join(got, " ") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, " "), want)
	}
	nics := []hypervisor.NIC{
		{Network: "a/a", MAC: "56:00:00:00:00:0a", Addresses: []netip.Addr{
			netip.MustParseAddr("10.0.0.100"), netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5"), netip.MustParseAddr("10.0.0.5"),
		}},
		{Network: "b/b", MAC: "56:00:00:00:00:02", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.5")}},
	}
	if got := NICs(vm, []string{"a/a", "b/b"}); !reflect.DeepEqual(got, nics) {
		t.Errorf("got %v, want %v", got, nics)
	}
	if got := Addresses("worker-1", &ovirt.VM{}, "10.0.0.100"); got != nil {
		t.Errorf("got %v of a guest that reports nothing", got)
	}
}

func TestConfiguration(t *testing.T) {
	pool := func(text, gateway string) hypervisor.Address {
		a := hypervisor.Address{Prefix: netip.MustParsePrefix(text)}
		a.Gateway, _ = netip.ParseAddr(gateway)
		return a
	}
	for name, tt := range map[string]struct {
		in     infrav1.InterfaceAddressing
		pooled []hypervisor.Address
		want   string
		no     string
	}{
		"not set":       {want: "eth3 dhcp - none -"},
		"DHCP for both": {in: infrav1.InterfaceAddressing{DHCP4: ptr.To(true), DHCP6: ptr.To(true)}, want: "eth3 dhcp - dhcp -"},
		"only IPv6":     {in: infrav1.InterfaceAddressing{DHCP6: ptr.To(true)}, want: "eth3 none - dhcp -"},
		"from a pool":   {in: infrav1.InterfaceAddressing{DHCP4: ptr.To(false)}, pooled: []hypervisor.Address{pool("10.0.0.5/22", "10.0.0.1")}, want: "eth3 static 10.0.0.5/255.255.252.0/10.0.0.1/v4 none -"},
		"own gateway": {
			in: infrav1.InterfaceAddressing{Addresses: []string{"10.0.0.5/8", "fd00::5/64"}, Gateway4: "10.0.0.254", Gateway6: "fd00::1"}, want: "eth3 static 10.0.0.5/255.0.0.0/10.0.0.254/v4 static fd00::5/64/fd00::1/v6",
		},
		"two addresses":   {in: infrav1.InterfaceAddressing{Addresses: []string{"10.0.0.5/8"}}, pooled: []hypervisor.Address{pool("10.0.0.6/8", "")}, no: "more than one"},
		"DHCP and static": {in: infrav1.InterfaceAddressing{Addresses: []string{"10.0.0.5/8"}, DHCP4: ptr.To(true)}, no: "has DHCP and a static address"},
		"bad address":     {in: infrav1.InterfaceAddressing{Addresses: []string{"x"}}, no: "addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			nic, err := nicConfiguration(3, &zvirtv1.NovaZVirtInterface{InterfaceAddressing: tt.in}, tt.pooled)
			if tt.no != "" {
				if !hypervisor.IsTerminal(err) || !strings.Contains(err.Error(), tt.no) {
					t.Errorf("got %v", err)
				}
				return
			}
			show := func(ip *ovirt.IP) string {
				if ip == nil {
					return "-"
				}
				return strings.Join([]string{ip.Address, ip.Netmask, ip.Gateway, ip.Version}, "/")
			}
			got := strings.Join([]string{nic.Name, nic.BootProtocol, show(nic.IP), nic.IPv6Protocol, show(nic.IPv6)}, " ")
			if err != nil || got != tt.want || !nic.OnBoot {
				t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

// Failure domains have subnets of their own.
func TestGatewayOfAFailureDomain(t *testing.T) {
	m := machine(func(m *zvirtv1.NovaZVirtMachineSpec) {
		m.Network.Interfaces[0].InterfaceAddressing = infrav1.InterfaceAddressing{
			AddressesFromPools: []ipamv1.IPPoolReference{{Name: "all"}}, Gateway4: "10.0.0.1",
		}
		m.Network.Interfaces[0].FailureDomains = []infrav1.InterfaceFailureDomain{{
			Name: "b", AddressesFromPools: []ipamv1.IPPoolReference{{Name: "b"}}, Gateway4: "10.0.0.254",
		}}
	})
	cluster := &zvirtv1.NovaZVirtClusterSpec{
		ClusterSpec:    infrav1.ClusterSpec{Network: "net/net"},
		FailureDomains: []zvirtv1.NovaZVirtFailureDomain{{FailureDomain: infrav1.FailureDomain{Name: "a"}}, {FailureDomain: infrav1.FailureDomain{Name: "b"}}},
	}
	pooled := [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("10.0.0.5/24")}}}
	for zone, want := range map[string]string{"": "10.0.0.1", "a": "10.0.0.1", "b": "10.0.0.254"} {
		at, err := PlacementOf(cluster, &m.Spec, zone)
		if err != nil {
			t.Fatal(err)
		}
		got, err := initialization(m, hypervisor.CreateOptions{UserData: []byte("#cloud-config\n"), Zone: zone, Interfaces: pooled}, at)
		if err != nil || got.NICConfigurations.NICs[0].IP.Gateway != want {
			t.Errorf("the gateway in %q is %v, %v, want %s", zone, got, err, want)
		}
	}
}

// rich sets all fields.
func rich(m *zvirtv1.NovaZVirtMachineSpec) {
	m.Hardware = zvirtv1.NovaZVirtHardware{
		CPUs: 4, CPUType: "Cascadelake-Server", CPUMode: zvirtv1.CPUModeCustom, CPUPinningPolicy: zvirtv1.CPUPinningResizeAndPinNUMA,
		MemoryMiB: 4096, MemoryReservationMiB: 2048, MaxMemoryMiB: 8192, Ballooning: ptr.To(true), HugepagesKiB: 1048576,
		VMType: zvirtv1.VMTypeHighPerformance, OSType: "debian_9", Firmware: infrav1.FirmwareEFI, SerialConsole: ptr.To(true),
		CustomProperties: []zvirtv1.NovaZVirtCustomProperty{{Name: "a", Value: "<b>"}},
	}
	m.HighAvailability = zvirtv1.NovaZVirtHighAvailability{LeaseStorageDomain: "lease"}
	m.CloneMode = infrav1.CloneFull
	m.MigrationMode = zvirtv1.MigrationMigratable
	m.Disks = zvirtv1.NovaZVirtDisks{
		Boot:     zvirtv1.NovaZVirtBootDisk{Format: zvirtv1.DiskFormatRaw, Provisioning: zvirtv1.ZVirtProvisioningThick},
		Template: []zvirtv1.NovaZVirtTemplateDisk{{Name: "var", NovaZVirtBootDisk: zvirtv1.NovaZVirtBootDisk{StorageDomain: "slow"}}},
	}
	m.Network.Interfaces = []zvirtv1.NovaZVirtInterface{{InterfaceAddressing: infrav1.InterfaceAddressing{
		Nameservers: []string{"10.0.0.2"}, SearchDomains: []string{"example.com"},
	}}}
}

// TestVM compares the requests for VMs with golden files. UPDATE=1 writes them.
func TestVM(t *testing.T) {
	template := &ovirt.Template{ID: "template", DiskAttachments: &ovirt.DiskAttachments{Attachments: []ovirt.DiskAttachment{
		{ID: "disk1", Bootable: ptr.To(true), Disk: &ovirt.Disk{Alias: "node_Disk1"}}, {ID: "disk2", Disk: &ovirt.Disk{Name: "var"}}, {ID: "disk3"},
	}}}
	from := CloneInputs{Cluster: "cluster", Template: template, Domains: map[string]string{"fast": "fast-id", "slow": "slow-id"}}
	full := from
	full.Lease, full.Hosts, full.InstanceType = "lease-id", []string{"host1", "host2"}, "type"
	l := hypervisor.CreateOptions{UserData: []byte("#cloud-config\nruncmd: ['a < b && c']\n"), Zone: "zone-1"}
	for name, tt := range map[string]struct {
		machine *zvirtv1.NovaZVirtMachine
		from    CloneInputs
	}{"plain": {machine(), from}, "rich": {machine(rich), full}} {
		t.Run(name, func(t *testing.T) {
			at := Placement{Interfaces: tt.machine.Spec.Network.Interfaces}
			at.StorageDomain = "fast"
			vm, err := VM(tt.machine, l, at, tt.from, id)
			if err != nil {
				t.Fatal(err)
			}
			got, err := xml.MarshalIndent(vm, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".xml")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != string(got)+"\n" {
				t.Errorf("%s differs (%v):\n%s", path, err, got)
			}
		})
	}
	thin := machine(rich)
	thin.Spec.CloneMode = infrav1.CloneLinked
	if _, err := VM(thin, l, Placement{Interfaces: thin.Spec.Network.Interfaces}, from, id); !hypervisor.IsTerminal(err) {
		t.Errorf("a thin raw disk: %v", err)
	}
}

// An interface gets the settings of the machine's failure domain.
func TestVMInFailureDomain(t *testing.T) {
	m := machine()
	m.Spec.Network.Interfaces = []zvirtv1.NovaZVirtInterface{{
		InterfaceAddressing: infrav1.InterfaceAddressing{DHCP4: ptr.To(true), Nameservers: []string{"192.0.2.53"}},
		FailureDomains: []infrav1.InterfaceFailureDomain{{
			Name: "site-b", AddressesFromPools: []ipamv1.IPPoolReference{{Name: "site-b"}}, Nameservers: []string{"198.51.100.53"}, SearchDomains: []string{"b.example.com"},
		}},
	}}
	pooled := [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("198.51.100.7/24"), Gateway: netip.MustParseAddr("198.51.100.1")}}}
	for zone, want := range map[string]*ovirt.Initialization{
		"site-a": {DNSServers: "192.0.2.53", NICConfigurations: &ovirt.NICConfigurations{NICs: []ovirt.NICConfiguration{
			{Name: "eth0", OnBoot: true, BootProtocol: "dhcp", IPv6Protocol: "none"},
		}}},
		"site-b": {DNSServers: "198.51.100.53", DNSSearch: "b.example.com", NICConfigurations: &ovirt.NICConfigurations{NICs: []ovirt.NICConfiguration{{
			Name: "eth0", OnBoot: true, BootProtocol: "static", IPv6Protocol: "none",
			IP: &ovirt.IP{Address: "198.51.100.7", Netmask: "255.255.255.0", Gateway: "198.51.100.1", Version: "v4"},
		}}}},
	} {
		l := hypervisor.CreateOptions{UserData: []byte("#cloud-config\n{}\n"), Zone: zone}
		if zone == "site-b" {
			l.Interfaces = pooled
		}
		at, err := PlacementOf(&zvirtv1.NovaZVirtClusterSpec{
			ClusterSpec:    infrav1.ClusterSpec{Network: "net/net"},
			FailureDomains: []zvirtv1.NovaZVirtFailureDomain{{FailureDomain: infrav1.FailureDomain{Name: zone}}},
		}, &m.Spec, zone)
		if err != nil {
			t.Fatal(err)
		}
		got, err := initialization(m, l, at)
		if err != nil {
			t.Fatal(err)
		}
		want.HostName, want.NetworkProtocol, want.CustomScript = got.HostName, got.NetworkProtocol, got.CustomScript
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", zone, diff)
		}
	}
}

// matchingVM returns a VM that matches machine, except for the change.
func matchingVM(change func(*ovirt.VM)) *ovirt.VM {
	vm := &ovirt.VM{
		ID: "vm", Status: "down", Cluster: ovirt.Ref("c"),
		NICs: &ovirt.NICs{NICs: []ovirt.NIC{{ID: "n1", Name: "nic1", VNICProfile: ovirt.Ref("p1"), MAC: &ovirt.MAC{Address: "02:00:00:00:00:01"}}}},
		DiskAttachments: &ovirt.DiskAttachments{Attachments: []ovirt.DiskAttachment{
			{ID: "d1", Bootable: ptr.To(true), Disk: &ovirt.Disk{
				ID: "d1", Alias: "worker-1-boot-1f3a9c2e", ProvisionedSize: 20 << 30, StorageDomains: &ovirt.DomainList{Domains: []ovirt.Object{{ID: "s1"}}},
			}},
			{ID: "d2", Disk: &ovirt.Disk{ID: "d2", Name: "worker-1-data-etcd-1f3a9c2e", ProvisionedSize: 8 << 30}},
			{ID: "d3", Disk: &ovirt.Disk{ID: "d3", Alias: "worker-1-template-var-1f3a9c2e", ProvisionedSize: 5 << 30}},
			{ID: "d4", Disk: &ovirt.Disk{ID: "d4", Alias: "pvc-1", ProvisionedSize: 1 << 30}},
		}},
		AffinityLabels: &ovirt.List{Items: []ovirt.Object{{ID: "l1"}}},
		Tags:           &ovirt.List{Items: []ovirt.Object{{ID: "t1"}}},
	}
	change(vm)
	return vm
}

func TestNextStep(t *testing.T) {
	m := machine(func(m *zvirtv1.NovaZVirtMachineSpec) {
		m.Network.Interfaces[0].MACAddress = "02:00:00:00:00:01"
		m.Hardware.Headless = ptr.To(true)
		m.Disks = zvirtv1.NovaZVirtDisks{
			Boot:     zvirtv1.NovaZVirtBootDisk{SizeGiB: 20},
			Template: []zvirtv1.NovaZVirtTemplateDisk{{Name: "var", NovaZVirtBootDisk: zvirtv1.NovaZVirtBootDisk{SizeGiB: 5}}},
			Data:     []zvirtv1.NovaZVirtDataDisk{{Name: "etcd", SizeGiB: 8}},
		}
	})
	provisioned := m.DeepCopy()
	provisioned.Spec.ProviderID = "zvirt://vm"
	bootable := m.DeepCopy()
	bootable.Spec.Disks.Data[0].Bootable = ptr.To(true)
	member := &ovirt.Members{VMs: []ovirt.Object{{ID: "vm"}}}
	refs := References{
		Cluster: "c", Profiles: []string{"p1"}, Labels: []ovirt.Object{{ID: "l1", Name: "label"}}, Tags: []ovirt.Object{{ID: "t1", Name: "tag"}},
		Groups: []ovirt.AffinityGroup{{ID: "g1", Name: "group", VMs: member}},
	}
	groups := func(g ...ovirt.AffinityGroup) func(*References) { return func(a *References) { a.Groups = g } }
	disk := func(i int, change func(*ovirt.DiskAttachment)) func(*ovirt.VM) {
		return func(vm *ovirt.VM) { change(&vm.DiskAttachments.Attachments[i]) }
	}
	lose := disk(1, func(a *ovirt.DiskAttachment) { a.Disk.Name = "somebody-s" })
	for name, tt := range map[string]struct {
		machine *zvirtv1.NovaZVirtMachine
		vm      func(*ovirt.VM)
		refs    func(*References)
		want    string
	}{
		"settled":           {want: ""},
		"no interface":      {vm: func(vm *ovirt.VM) { vm.NICs = nil }, want: "POST vms/vm/nics"},
		"other profile":     {vm: func(vm *ovirt.VM) { vm.NICs.NICs[0].VNICProfile.ID = "p2" }, want: "PUT vms/vm/nics/n1"},
		"other address":     {vm: func(vm *ovirt.VM) { vm.NICs.NICs[0].MAC.Address = "02:00:00:00:00:02" }, want: "PUT vms/vm/nics/n1"},
		"extra interface":   {vm: func(vm *ovirt.VM) { vm.NICs.NICs = append(vm.NICs.NICs, ovirt.NIC{ID: "n2", Name: "nic2"}) }, want: "DELETE vms/vm/nics/n2"},
		"small boot disk":   {vm: disk(0, func(a *ovirt.DiskAttachment) { a.Disk.ProvisionedSize = 1 << 30 }), want: "PUT disks/d1"},
		"larger boot disk":  {vm: disk(0, func(a *ovirt.DiskAttachment) { a.Disk.ProvisionedSize = 99 << 30 }), want: ""},
		"small disk":        {vm: disk(2, func(a *ovirt.DiskAttachment) { a.Disk.ProvisionedSize = 1 << 30 }), want: "PUT disks/d3"},
		"no data disk":      {vm: lose, want: "POST vms/vm/diskattachments"},
		"two boot disks":    {machine: bootable, vm: lose, want: "error"},
		"console":           {vm: func(vm *ovirt.VM) { vm.Consoles = &ovirt.List{Items: []ovirt.Object{{ID: "c1"}}} }, want: "DELETE vms/vm/graphicsconsoles/c1"},
		"no group":          {refs: groups(ovirt.AffinityGroup{Name: "g"}), want: "POST clusters/c/affinitygroups"},
		"not a member":      {refs: groups(ovirt.AffinityGroup{ID: "g2", Name: "g"}), want: "POST clusters/c/affinitygroups/g2/vms"},
		"left":              {refs: func(a *References) { a.GroupsToLeave = []ovirt.AffinityGroup{{ID: "g2"}} }, want: "DELETE clusters/c/affinitygroups/g2/vms/vm"},
		"no label":          {vm: func(vm *ovirt.VM) { vm.AffinityLabels = nil }, want: "POST vms/vm/affinitylabels"},
		"no tag":            {vm: func(vm *ovirt.VM) { vm.Tags = &ovirt.List{} }, want: "POST vms/vm/tags"},
		"later: interface":  {machine: provisioned, vm: func(vm *ovirt.VM) { vm.NICs = nil }, want: ""},
		"running: disk":     {vm: func(vm *ovirt.VM) { vm.Status = "up"; vm.DiskAttachments = nil }, want: ""},
		"running: group":    {machine: provisioned, vm: func(vm *ovirt.VM) { vm.Status = "up" }, refs: groups(ovirt.AffinityGroup{ID: "g2"}), want: "POST clusters/c/affinitygroups/g2/vms"},
		"disk of a machine": {vm: disk(3, func(a *ovirt.DiskAttachment) { a.Disk.ProvisionedSize = 0 }), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.machine == nil {
				tt.machine = m
			}
			if tt.vm == nil {
				tt.vm = func(*ovirt.VM) {}
			}
			a, vm := refs, matchingVM(tt.vm)
			if tt.refs != nil {
				tt.refs(&a)
			}
			next, err := NextStep(tt.machine, vm, Placement{Interfaces: tt.machine.Spec.Network.Interfaces}, a, id)
			got := ""
			switch {
			case err != nil:
				got = "error"
			case next != nil:
				got = next.Request.Method + " " + strings.Join(next.Request.Path, "/")
			}
			if got != tt.want {
				t.Fatalf("got %q, %v; want %q", got, err, tt.want)
			}
			if next == nil {
				return
			}
			if next.Description == "" {
				t.Error("the step has no description")
			}
			before := matchingVM(tt.vm)
			next.Apply(&ovirt.VM{})
			if b, v := show(t, before), show(t, vm); b != v {
				t.Errorf("the VM that was observed was changed:\n%s\n%s", b, v)
			}
		})
	}
}

func show(t *testing.T, vm *ovirt.VM) string {
	t.Helper()
	out, err := xml.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestIsOwned(t *testing.T) {
	for name, want := range map[string]bool{
		"worker-1-boot-1f3a9c2e": true, "pvc-1": false, "worker-1-backup": false, "worker-1-boot-1f3a9c2f": false, "": false,
	} {
		if got := IsOwned(ovirt.DiskAttachment{Disk: &ovirt.Disk{Alias: name}}, id); got != want {
			t.Errorf("%q: got %t", name, got)
		}
	}
	if IsOwned(ovirt.DiskAttachment{}, id) {
		t.Error("a disk of which nothing is known counts as owned")
	}
}

func TestAntiAffinityGroup(t *testing.T) {
	for mode, want := range map[infrav1.AntiAffinity]string{
		"": "", infrav1.AntiAffinityPreferred: "nova-workers-preferred-cid", infrav1.AntiAffinityRequired: "nova-workers-required-cid", infrav1.AntiAffinityNone: "",
	} {
		m := machine()
		m.Labels[clusterv1.MachineDeploymentNameLabel] = "workers"
		g, ok := AntiAffinityGroup("cid", m, Placement{AntiAffinity: mode})
		if g.Name != want || ok != (want != "") || ok && (g.VMsRule.Positive || g.VMsRule.Enforcing != (mode == infrav1.AntiAffinityRequired)) {
			t.Errorf("%s: got %+v, %t", mode, g, ok)
		}
	}
	own, _ := AntiAffinityGroup("cid", func() *zvirtv1.NovaZVirtMachine {
		m := machine(func(*zvirtv1.NovaZVirtMachineSpec) {})
		m.Labels[clusterv1.MachineDeploymentNameLabel] = "workers"
		return m
	}(), Placement{AntiAffinity: infrav1.AntiAffinityPreferred})
	for description, want := range map[string]string{own.Description: "cid", "nova-cluster/x": "x", "nova-cluster/": "", "created by a user": "", "": ""} {
		if got := GroupOwner(&ovirt.AffinityGroup{Description: description}); got != want {
			t.Errorf("the owner by %q is %q, want %q", description, got, want)
		}
	}
	if _, ok := AntiAffinityGroup("cid", &zvirtv1.NovaZVirtMachine{}, Placement{AntiAffinity: infrav1.AntiAffinityPreferred}); ok {
		t.Error("a machine without a group got one")
	}
}

func TestRemoveUserData(t *testing.T) {
	vm := &ovirt.VM{ID: "vm"}
	next := RemoveUserData(vm, Mark{ID: id, Zone: "a", UserDataFormat: CloudConfig})
	body, err := xml.Marshal(next.Request.Body)
	want := "<vm><comment>" + (Mark{ID: id, Zone: "a"}).String() + "</comment><initialization><custom_script></custom_script></initialization></vm>"
	if err != nil || string(body) != want {
		t.Errorf("got %s, %v\nwant %s", body, err, want)
	}
}

func TestChooseDevices(t *testing.T) {
	const vendor, kind = 0x10de, 0x1eb8
	device := func(name string, group int, change ...func(*ovirt.HostDevice)) ovirt.HostDevice {
		d := ovirt.HostDevice{Name: name, Capability: "pci", IOMMUGroup: &group, Vendor: ovirt.Ref("0x10de"), Product: ovirt.Ref("0x1eb8")}
		for _, f := range change {
			f(&d)
		}
		return d
	}
	host := func(id string, devices ...ovirt.HostDevice) ovirt.Host {
		return ovirt.Host{ID: id, Status: "up", MaxSchedulingMemory: 8 << 30, Devices: ovirt.HostDevices{Devices: devices}}
	}
	sound := func(d *ovirt.HostDevice) { d.Product = ovirt.Ref("0x10f0") }
	down := host("h", device("a", 1))
	down.Status = "maintenance"
	full := host("h", device("a", 1))
	full.MaxSchedulingMemory = 4<<30 - 1
	for name, tc := range map[string]struct {
		hosts    []ovirt.Host
		count    int
		reserved string
		want     string
	}{
		"the host with the most":     {[]ovirt.Host{host("g", device("a", 1)), host("h", device("b", 1), device("c", 2))}, 1, "", "h/b"},
		"two of one host":            {[]ovirt.Host{host("g", device("a", 1)), host("h", device("b", 1), device("c", 2))}, 2, "", "h/b,c"},
		"not one of each host":       {[]ovirt.Host{host("g", device("a", 1)), host("h", device("b", 1))}, 2, "", ""},
		"none":                       {nil, 1, "", ""},
		"one that runs":              {[]ovirt.Host{host("h", device("a", 1, func(d *ovirt.HostDevice) { d.VM = ovirt.Ref("v") }), device("b", 2))}, 1, "", "h/b"},
		"one that is reserved":       {[]ovirt.Host{host("h", device("a", 1), device("b", 2))}, 1, "h/a", "h/b"},
		"reserved on another host":   {[]ovirt.Host{host("h", device("a", 1))}, 1, "g/a", "h/a"},
		"group of a reserved device": {[]ovirt.Host{host("h", device("a", 1, sound), device("b", 1), device("c", 2))}, 1, "h/a", "h/c"},
		"another kind":               {[]ovirt.Host{host("h", device("a", 1, sound))}, 1, "", ""},
		"no PCI device":              {[]ovirt.Host{host("h", device("a", 1, func(d *ovirt.HostDevice) { d.Capability = "net" }))}, 1, "", ""},
		"without IOMMU":              {[]ovirt.Host{host("h", device("a", 1, func(d *ovirt.HostDevice) { d.IOMMUGroup = nil }))}, 1, "", ""},
		"a host in maintenance":      {[]ovirt.Host{down}, 1, "", ""},
		"a host without memory":      {[]ovirt.Host{full}, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &zvirtv1.NovaZVirtHardware{MemoryMiB: 4096}
			for range tc.count {
				h.PCIDevices = append(h.PCIDevices, zvirtv1.NovaZVirtPCIDevice{VendorID: vendor, DeviceID: kind})
			}
			got, err := ChooseDevices(h, tc.hosts, func(host, name string) bool { return host+"/"+name == tc.reserved })
			if got.String() != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %s and %v, want %q", got, err, tc.want)
			}
			if read := ReadDevices(got.String()); !reflect.DeepEqual(read, got) {
				t.Errorf("the comment of the VM has the devices %v", read)
			}
		})
	}
}
