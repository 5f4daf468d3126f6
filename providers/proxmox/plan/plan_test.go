package plan

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/kdomanski/iso9660"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

var machineID = uuid.MustParse("78dafd3e-2855-5c37-976e-30490246a529")

// files reads an image as an independent implementation does.
func files(t *testing.T, image []byte) map[string]string {
	t.Helper()
	g := NewWithT(t)
	i, err := iso9660.OpenImage(bytes.NewReader(image))
	g.Expect(err).NotTo(HaveOccurred())
	label, err := i.Label()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.TrimSpace(label)).To(Equal("cidata"))
	root, err := i.RootDir()
	g.Expect(err).NotTo(HaveOccurred())
	children, err := root.GetChildren()
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, c := range children {
		text, err := io.ReadAll(c.Reader())
		g.Expect(err).NotTo(HaveOccurred())
		found[c.Name()] = string(text)
	}
	return found
}

func TestImage(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("0123456789", 1000)
	image := Image("cidata", File{"meta-data", nil}, File{"network-config", []byte("version: 2\n")}, File{"user-data", []byte(long)})
	g.Expect(len(image) % sector).To(BeZero())
	g.Expect(files(t, image)).To(Equal(map[string]string{"meta-data": "", "network-config": "version: 2\n", "user-data": long}))
}

func TestMark(t *testing.T) {
	g := NewWithT(t)
	mark := Mark{
		ID: machineID, ISO: "local", Zone: hashed("a b"), Group: hashed("x"), Machine: "m.example",
		Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")},
	}
	for _, tag := range mark.Tags() {
		g.Expect(tag).To(MatchRegexp(`^[a-z0-9_][a-z0-9_\-+.]*$`), "a tag that Proxmox VE accepts")
	}
	got, ok := ReadMark(append([]string{"mine"}, mark.Tags()...))
	g.Expect(ok).To(BeTrue())
	g.Expect(got).To(Equal(mark))
	got, ok, disks := ReadDescription(Description(&proxmoxv1.NovaProxmoxMachine{}, &mark, []string{"scsi0", "scsi1"}))
	g.Expect(ok).To(BeTrue())
	g.Expect(got).To(Equal(mark))
	g.Expect(disks).To(Equal([]string{"scsi0", "scsi1"}))
	_, ok = ReadMark([]string{"nova-owner-x", "nova-iso-local"})
	g.Expect(ok).To(BeFalse())
}

// The IDs never change: existing VMs would not be found any more.
func TestCandidates(t *testing.T) {
	g := NewWithT(t)
	c := &proxmoxv1.NovaProxmoxClusterSpec{}
	ids := Candidates(c, machineID)
	g.Expect(ids).To(HaveLen(maxCandidates))
	g.Expect(ids[:2]).To(Equal([]int{113992630, 240793466}))
	c.VMIDs = proxmoxv1.NovaProxmoxVMIDRange{Start: 500, End: 599}
	for _, id := range Candidates(c, machineID) {
		g.Expect(id).To(And(BeNumerically(">=", 500), BeNumerically("<=", 599)))
	}
	in := &proxmoxv1.NovaProxmoxInterface{}
	g.Expect(MAC(machineID, in, 0)).To(MatchRegexp(`^02(:[0-9A-F]{2}){5}$`))
	g.Expect(MAC(machineID, in, 0)).NotTo(Equal(MAC(machineID, in, 1)))
}

// list is a site of three nodes with a local template on each, and a shared one.
func list() *Site {
	s := &Site{}
	for i, name := range []string{"a", "b", "c"} {
		s.Nodes = append(s.Nodes, &pve.Resource{Type: "node", Node: name, Status: "online", MaxMem: 64 << 30})
		s.Guests = append(s.Guests, &pve.Resource{Type: "qemu", Node: name, VMID: 900 + i, Name: "node", Template: 1, MaxMem: 4 << 30, MaxCPU: 2, MaxDisk: 20 << 30})
		s.Storages = append(s.Storages,
			&pve.Resource{Type: "storage", Node: name, Storage: "local", Content: "iso,images", Status: "available"},
			&pve.Resource{Type: "storage", Node: name, Storage: "nfs", Content: "images,iso", Shared: 1, Status: "available"})
	}
	return s
}

func TestHost(t *testing.T) {
	peer := func(id int, node, status string, group string) *pve.Resource {
		mark := Mark{ID: uuid.New(), Group: group}
		return &pve.Resource{Type: "qemu", VMID: id, Node: node, Status: status, MaxMem: 8 << 30, Tags: strings.Join(mark.Tags(), ";")}
	}
	for name, c := range map[string]struct {
		change   func(*Site, *Settings, *Bounds)
		required bool
		node     string
		template int
		reason   string
	}{
		"the first of equal nodes": {func(*Site, *Settings, *Bounds) {}, false, "a", 900, ""},
		"most free memory":         {func(s *Site, _ *Settings, _ *Bounds) { s.Nodes[0].Mem, s.Nodes[1].Mem = 9<<30, 8<<30 }, false, "c", 902, ""},
		"memory of running VMs": {func(s *Site, _ *Settings, _ *Bounds) {
			s.Guests = append(s.Guests, peer(1, "a", "running", ""), peer(2, "b", "stopped", ""), peer(3, "c", "running", ""))
		}, false, "b", 901, ""},
		"planned VMs": {func(s *Site, _ *Settings, _ *Bounds) {
			s.Planned = []Planned{{VMID: 1, Node: "a", Memory: 1}, {VMID: 2, Node: "b", Memory: 2, Group: "g"}}
		}, false, "c", 902, ""},
		"fewest peers": {func(s *Site, _ *Settings, _ *Bounds) {
			s.Guests = append(s.Guests, peer(1, "a", "stopped", "g"), peer(2, "c", "stopped", "g"))
			s.Nodes[1].Mem = 60 << 30
		}, false, "b", 901, ""},
		"required, without a node": {func(s *Site, _ *Settings, _ *Bounds) {
			s.Guests = append(s.Guests, peer(1, "a", "stopped", "g"), peer(2, "b", "stopped", "g"), peer(3, "c", "stopped", "g"))
		}, true, "", 0, infrav1.InsufficientResourcesReason},
		"offline":        {func(s *Site, _ *Settings, _ *Bounds) { s.Nodes[0].Status = "offline" }, false, "b", 901, ""},
		"nodes":          {func(_ *Site, s *Settings, _ *Bounds) { s.Nodes = []string{"c"} }, false, "c", 902, ""},
		"bounds":         {func(_ *Site, _ *Settings, b *Bounds) { b.Nodes = []string{"b"} }, false, "b", 901, ""},
		"no node":        {func(_ *Site, s *Settings, _ *Bounds) { s.Nodes = []string{"d"} }, false, "", 0, infrav1.PlacementNotFoundReason},
		"local template": {func(s *Site, _ *Settings, _ *Bounds) { s.Guests = s.Guests[:1]; s.Nodes[0].Mem = 60 << 30 }, false, "a", 900, ""},
		"local template of another node": {func(s *Site, settings *Settings, _ *Bounds) { s.Guests = s.Guests[:1]; settings.Nodes = []string{"b"} },
			false, "", 0, infrav1.PlacementNotFoundReason},
		"shared template": {func(s *Site, _ *Settings, _ *Bounds) { s.Guests = s.Guests[2:]; s.Guests[0].Pool = "shared" }, false, "a", 902, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			site, settings, bounds := list(), &Settings{Template: proxmoxv1.NovaProxmoxTemplate{Name: "node"}}, &Bounds{}
			c.change(site, settings, bounds)
			templates, err := settings.Templates(site, bounds)
			g.Expect(err).NotTo(HaveOccurred())
			host, err := settings.Host(site, bounds, templates, "g", c.required, func(t *pve.Resource) []string {
				if t.Pool == "shared" {
					return []string{"nfs"}
				}
				return []string{"local"}
			})
			g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(c.reason), "%v", err)
			g.Expect(host.Node).To(Equal(c.node))
			if c.template != 0 {
				g.Expect(host.Template.VMID).To(Equal(c.template))
			}
		})
	}
}

func TestTemplatesThatCannotBeCloned(t *testing.T) {
	settings := &Settings{Template: proxmoxv1.NovaProxmoxTemplate{Name: "node"}}
	for name, c := range map[string]struct {
		change func(*Site)
		err    string
	}{
		"tags of a machine": {func(s *Site) { s.Guests[0].Tags = strings.Join((&Mark{ID: uuid.New()}).Tags(), ";") }, "remove its tags that begin with nova-"},
		"all nodes offline": {func(s *Site) {
			for _, n := range s.Nodes {
				n.Status = "offline"
			}
		}, "is offline"},
	} {
		t.Run(name, func(t *testing.T) {
			site := list()
			c.change(site)
			_, err := settings.Templates(site, &Bounds{})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.err)))
		})
	}
}

// Only a drive can be the image of cloud-init, whatever its text contains.
func TestCloudInit(t *testing.T) {
	g := NewWithT(t)
	c := Config{
		"tags": "cloudinit", "description": "cloudinit", "name": "cloudinit-0", "scsi0": "cloudinit:100/vm-100-disk-0.qcow2,size=20G",
		"ide0": "local:vm-100-cloudinit,media=cdrom", "ide1": "local:100/vm-100-cloudinit.qcow2,media=cdrom", "ide3": "none:cloudinit,media=cdrom",
	}
	m := machine()
	settings, err := SettingsOf(&proxmoxv1.NovaProxmoxClusterSpec{ClusterSpec: infrav1.ClusterSpec{Network: "vmbr0"}}, &m.Spec, "")
	g.Expect(err).NotTo(HaveOccurred())
	form, err := Configuration(m, &settings, &Mark{ID: machineID, ISO: "nfs"}, c, nil, "nfs:iso/nova.iso")
	g.Expect(err).NotTo(HaveOccurred())
	removed := slices.DeleteFunc(strings.Split(form.Get("delete"), ","), func(name string) bool { return strings.HasPrefix(name, "net") })
	g.Expect(removed).To(ConsistOf("ide0", "ide1", "ide3"))
	g.Expect(c.Disks()).To(Equal([]string{"scsi0"}))
}

func machine() *proxmoxv1.NovaProxmoxMachine {
	return &proxmoxv1.NovaProxmoxMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineDeploymentNameLabel: "md"},
	}}
}

func TestConfiguration(t *testing.T) {
	g := NewWithT(t)
	on := true
	m := machine()
	m.Spec.Hardware = proxmoxv1.NovaProxmoxHardware{
		CPUs: 8, CPUTopology: infrav1.CPUTopology{CoresPerSocket: 4}, CPUType: "host", MemoryMiB: 8192, MachineType: "q35", Firmware: infrav1.FirmwareEFI,
		SecureBoot: &on, TrustedPlatformModule: &on, NUMA: &on, PCIDevices: []proxmoxv1.NovaProxmoxPCIDevice{{Mapping: "gpu", PCIe: &on}},
	}
	m.Spec.Disks.Boot = proxmoxv1.NovaProxmoxBootDisk{SizeGiB: 40, NovaProxmoxDiskOptions: proxmoxv1.NovaProxmoxDiskOptions{Discard: &on, SSD: &on}}
	m.Spec.Disks.Data = []proxmoxv1.NovaProxmoxDataDisk{{Name: "etcd", SizeGiB: 10}, {Name: "logs", SizeGiB: 5, Storage: "nfs", NovaProxmoxDiskOptions: proxmoxv1.NovaProxmoxDiskOptions{Cache: "None"}}}
	m.Spec.Tags = []string{"prod"}
	m.Spec.Network.Interfaces = []proxmoxv1.NovaProxmoxInterface{{VLAN: 7, MTU: 1400, Firewall: &on}}
	settings, err := SettingsOf(&proxmoxv1.NovaProxmoxClusterSpec{ClusterSpec: infrav1.ClusterSpec{Network: "vmbr0"}}, &m.Spec, "")
	g.Expect(err).NotTo(HaveOccurred())
	config := Config{
		"scsi0": "local:vm-5-disk-0,discard=ignore,size=20G", "scsi2": "local:vm-5-disk-1,size=1G", "ide0": "local:vm-5-cloudinit,media=cdrom",
		"boot": "order=scsi0;net0", "net0": "virtio=AA:BB:CC:DD:EE:FF,bridge=x", "net1": "virtio=AA:BB:CC:DD:EE:F0,bridge=y",
	}
	form, err := Configuration(m, &settings, &Mark{ID: machineID, ISO: "nfs"}, config, []string{"golden", "nova-owner-x"}, "nfs:iso/nova.iso")
	g.Expect(err).NotTo(HaveOccurred())
	for name, value := range map[string]string{
		"net0":  "virtio=" + MAC(machineID, &settings.Interfaces[0], 0) + ",bridge=vmbr0,tag=7,mtu=1400,firewall=1",
		"cores": "4", "sockets": "2", "cpu": "host", "memory": "8192", "balloon": "0", "machine": "q35", "bios": "ovmf", "numa": "1",
		"hostpci0": "mapping=gpu,pcie=1", "efidisk0": "local:1,efitype=4m,pre-enrolled-keys=1", "tpmstate0": "local:1,version=v2.0",
		"scsi0": "local:vm-5-disk-0,size=20G,discard=on,ssd=1", "scsi1": "local:10,serial=nova-etcd", "scsi3": "nfs:5,serial=nova-logs,cache=none",
		"ide2": "nfs:iso/nova.iso,media=cdrom", "boot": "order=scsi0", "agent": "enabled=1",
		"tags":    "golden;nova-iso-nfs;nova-owner-" + machineID.String() + ";prod",
		"smbios1": "uuid=" + machineID.String() + ",manufacturer=UHJveG1veA==,base64=1",
	} {
		g.Expect(form.Get(name)).To(Equal(value), name)
	}
	g.Expect(strings.Split(form.Get("delete"), ",")).To(And(HaveLen(32), ContainElements("ide0", "net1", "net31"), Not(ContainElement("net0"))))
	_, _, own := ReadDescription(form.Get("description"))
	g.Expect(own).To(Equal([]string{"scsi0", "scsi2", "efidisk0", "tpmstate0", "scsi1", "scsi3"}))
	grow, smaller := Resize(m, config)
	g.Expect(smaller).To(BeTrue())
	g.Expect(grow.Encode()).To(Equal("disk=scsi0&size=40G"))
	config["scsi0"] = "local:vm-5-disk-0,size=41472M"
	_, smaller = Resize(m, config)
	g.Expect(smaller).To(BeFalse())
}

func TestForeignDisks(t *testing.T) {
	g := NewWithT(t)
	description := Description(machine(), &Mark{ID: machineID}, []string{"scsi0"})
	own := Config{"description": description, "scsi0": "local:vm-5-disk-0,size=1G", "scsi1": "local:vm-9999-pvc-1,size=1G", "ide2": "none,media=cdrom"}
	g.Expect(ForeignDisks(5, own, true)).To(BeEmpty(), "volumes of other IDs are kept by Proxmox VE")
	own["unused0"] = "local:vm-5-disk-7"
	g.Expect(ForeignDisks(5, own, true)).To(ConsistOf("unused0 (local:vm-5-disk-7)"))
	g.Expect(ForeignDisks(5, own, false)).To(BeEmpty(), "a clone without configuration has only its own disks")
	own["description"] = "mine"
	_, err := ForeignDisks(5, own, true)
	g.Expect(err).To(MatchError(ContainSubstring("description")))
}

func TestSeed(t *testing.T) {
	g := NewWithT(t)
	m := machine()
	m.Spec.Network.Interfaces = []proxmoxv1.NovaProxmoxInterface{{DeviceName: "eth0"}}
	m.Spec.Network.Interfaces[0].Nameservers = []string{"10.0.0.1"}
	c := &proxmoxv1.NovaProxmoxClusterSpec{ClusterSpec: infrav1.ClusterSpec{Network: "vmbr0"}}
	s, err := SettingsOf(c, &m.Spec, "")
	g.Expect(err).NotTo(HaveOccurred())
	l := hypervisor.CreateOptions{UserData: []byte("#cloud-config\n"), Zone: "z", Interfaces: [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("10.1.2.3/24"), Gateway: netip.MustParseAddr("10.1.2.1")}}}}
	seed, err := NewSeed("x", c, m, &s, l, machineID)
	g.Expect(err).NotTo(HaveOccurred())
	found := files(t, seed.Image)
	g.Expect(found["meta-data"]).To(Equal("instance-id: " + machineID.String() + "\nlocal-hostname: m\n"))
	g.Expect(found["user-data"]).To(Equal("#cloud-config\n"))
	g.Expect(found["network-config"]).To(And(ContainSubstring("10.1.2.3/24"), ContainSubstring("gateway4: 10.1.2.1"), ContainSubstring("set-name: eth0"),
		ContainSubstring(strings.ToLower(MAC(machineID, &s.Interfaces[0], 0)))))
	g.Expect(seed.Mark.Addresses).To(ConsistOf(netip.MustParseAddr("10.1.2.3")))
	site := list()
	_, volume, err := seed.SetStorage(site, &s, &Bounds{}, "b", "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(volume).To(Equal("nfs:iso/nova-"+machineID.String()+".iso"), "a shared storage is preferred")
	_, volume, err = seed.SetStorage(site, &s, &Bounds{}, "b", "local")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(volume).To(HavePrefix("local:"), "a storage is chosen once")
	id, ok := ImageOwner(volume)
	g.Expect(ok).To(BeTrue())
	g.Expect(id).To(Equal(machineID))
	_, ok = ImageOwner("local:iso/debian.iso")
	g.Expect(ok).To(BeFalse())

	for _, bad := range []hypervisor.CreateOptions{
		{Format: "talos"}, {UserData: make([]byte, MaxUserData+1)}, {Format: ignition, Interfaces: l.Interfaces},
	} {
		_, err := NewSeed("x", c, m, &s, bad, machineID)
		var e *hypervisor.Error
		g.Expect(errors.As(err, &e)).To(BeTrue())
		g.Expect(e.Terminal).To(BeTrue())
	}
}

// Bounds limit the VLANs of a network and the PCI devices, with the entry to add.
func TestBoundsOfMachines(t *testing.T) {
	for name, c := range map[string]struct {
		bounds  proxmoxv1.NovaProxmoxBounds
		network string
		vlan    int32
		mapping string
		err     string
	}{
		"no bounds":                {network: "vmbr0", vlan: 7, mapping: "gpu"},
		"a whole network":          {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0"}}, network: "vmbr0", vlan: 7},
		"another network":          {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0"}}, network: "vmbr1", err: `network "vmbr1"`},
		"a VLAN":                   {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr1", "vmbr0/100"}}, network: "vmbr0", vlan: 100},
		"another VLAN":             {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0/100"}}, network: "vmbr0", vlan: 101, err: `network "vmbr0/101" is outside of spec.bounds.networks`},
		"the VLAN of a network":    {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr1/100"}}, network: "vmbr0", vlan: 100, err: `network "vmbr0/100"`},
		"no VLAN":                  {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0/100"}}, network: "vmbr0", err: `network "vmbr0" is outside`},
		"the end of a range":       {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0/100-199"}}, network: "vmbr0", vlan: 199},
		"the start of a range":     {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0/100-199"}}, network: "vmbr0", vlan: 100},
		"a VLAN after a range":     {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0/100-199"}}, network: "vmbr0", vlan: 200, err: "is outside"},
		"no VLAN, with a range":    {bounds: proxmoxv1.NovaProxmoxBounds{Networks: []string{"vmbr0/1-4094"}}, network: "vmbr0", err: "is outside"},
		"a mapping":                {bounds: proxmoxv1.NovaProxmoxBounds{PCIMappings: []string{"gpu"}}, network: "vmbr0", mapping: "gpu"},
		"another mapping":          {bounds: proxmoxv1.NovaProxmoxBounds{PCIMappings: []string{"nic"}}, network: "vmbr0", mapping: "gpu", err: `hardware.pciDevices "gpu" is outside of spec.bounds.pciMappings`},
		"a machine without a pool": {bounds: proxmoxv1.NovaProxmoxBounds{Pools: []string{"p"}}, network: "vmbr0", err: "spec.bounds.pools"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &Settings{Interfaces: []proxmoxv1.NovaProxmoxInterface{{Network: c.network, VLAN: c.vlan}}}
			h := &proxmoxv1.NovaProxmoxHardware{}
			if c.mapping != "" {
				h.PCIDevices = []proxmoxv1.NovaProxmoxPCIDevice{{Mapping: c.mapping}}
			}
			err := s.CheckBounds(&Bounds{Identity: "team", NovaProxmoxBounds: c.bounds}, h)
			if c.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(And(ContainSubstring(c.err), ContainSubstring(`NovaProxmoxIdentity "team"`))))
			g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.OutOfBoundsReason))
		})
	}
}

func TestConflicts(t *testing.T) {
	g := NewWithT(t)
	site := list()
	other := Mark{ID: uuid.New(), Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3")}}
	site.Guests = append(site.Guests, &pve.Resource{Type: "qemu", VMID: 5, Name: "other", Tags: strings.Join(other.Tags(), ";")}, &pve.Resource{Type: "qemu", VMID: 6, Name: "m"})
	own := Mark{ID: machineID}
	g.Expect(site.CheckConflicts(&own, "m", "pool", 7)).To(Succeed(), "another pool")
	g.Expect(site.CheckConflicts(&own, "m", "", 7)).To(HaveField("Reason", infrav1.NameConflictReason))
	own.Addresses = other.Addresses
	g.Expect(site.CheckConflicts(&own, "x", "", 7)).To(HaveField("Reason", infrav1.AddressInUseReason))
}
