package plan

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"k8s.io/utils/ptr"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// ISODrive is the drive with the bootstrap data. An empty drive can be changed while
// the VM runs, and cannot be removed.
const ISODrive = "ide2"

// maxInterfaces is the number of network interfaces that a VM can have.
const maxInterfaces = 32

// EmptyDrive is the value of a drive without an image.
const EmptyDrive = "none,media=cdrom"

// Config is the configuration of a VM or template, as the API returns it.
type Config map[string]string

// Disks returns the names of the disks of a VM in their order, without drives for
// images.
func (c Config) Disks() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		kind := strings.TrimRight(name, "0123456789")
		if kind != name && slices.Contains([]string{"scsi", "virtio", "sata", "ide", "efidisk", "tpmstate"}, kind) && !strings.Contains(c[name], "media=cdrom") && !isCloudInit(name, c[name]) {
			out = append(out, name)
		}
	}
	return out
}

var (
	driveNames = regexp.MustCompile(`^(ide|sata|scsi|virtio)\d+$`)
	// cloudInitFile is the name of the image that Proxmox VE makes for cloud-init.
	cloudInitFile = regexp.MustCompile(`[:/](vm-\d+-)?cloudinit(\.\w+)?$`)
)

// isCloudInit reports whether an option is a drive with the image that Proxmox VE makes
// for cloud-init. A second image with bootstrap data would be in its way.
func isCloudInit(option, value string) bool {
	file, _, _ := strings.Cut(value, ",")
	return driveNames.MatchString(option) && cloudInitFile.MatchString(strings.TrimPrefix(file, "file="))
}

// Storages returns the storages of the disks.
func (c Config) Storages() []string {
	var out []string
	for _, name := range c.Disks() {
		storage, _, _ := strings.Cut(c[name], ":")
		out = append(out, storage)
	}
	return out
}

// bootDisk returns the name of the disk that a VM boots from.
func (c Config) bootDisk() string {
	disks := slices.DeleteFunc(c.Disks(), func(d string) bool { return strings.HasPrefix(d, "efidisk") || strings.HasPrefix(d, "tpmstate") })
	_, order, _ := strings.Cut(c["boot"], "order=")
	order, _, _ = strings.Cut(order, ",")
	for name := range strings.SplitSeq(order, ";") {
		if slices.Contains(disks, name) {
			return name
		}
	}
	if slices.Contains(disks, c["bootdisk"]) {
		return c["bootdisk"]
	}
	for _, name := range []string{"scsi0", "virtio0", "sata0", "ide0"} {
		if slices.Contains(disks, name) {
			return name
		}
	}
	return ""
}

// option returns an option of a value such as a drive.
func option(value, name string) string {
	for part := range strings.SplitSeq(value, ",") {
		if text, ok := strings.CutPrefix(part, name+"="); ok {
			return text
		}
	}
	return ""
}

// sizeGiB returns the size of a disk, rounded down.
func sizeGiB(drive string) int64 {
	text := option(drive, "size")
	unit := map[string]int64{"M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "K": 1 << 10}[text[max(len(text)-1, 0):]]
	n, _ := strconv.ParseFloat(strings.TrimRight(text, "KMGT"), 64)
	return int64(n*float64(max(unit, 1))) >> 30
}

// Resize returns the parameters of the request that grows the boot disk, if it is
// smaller than in the spec.
func Resize(m *proxmoxv1.NovaProxmoxMachine, c Config) (url.Values, bool) {
	disk, want := c.bootDisk(), m.Spec.Disks.Boot.SizeGiB
	if disk == "" || want == 0 || sizeGiB(c[disk]) >= want {
		return nil, false
	}
	return url.Values{"disk": {disk}, "size": {fmt.Sprintf("%dG", want)}}, true
}

// Clone returns the parameters of the request that creates a VM. The VM has the owner
// mark as soon as it exists.
func Clone(m *proxmoxv1.NovaProxmoxMachine, s *Settings, h Host, vmid int, mark *Mark, c Config) (url.Values, error) {
	form := url.Values{
		"newid": {strconv.Itoa(vmid)}, "name": {m.Spec.VMName(m)}, "description": {Description(m, mark, nil)},
	}
	if s.Pool != "" {
		form.Set("pool", s.Pool)
	}
	if h.Node != h.Template.Node {
		form.Set("target", h.Node)
	}
	moved := s.Storage != "" && slices.ContainsFunc(c.Storages(), func(name string) bool { return name != s.Storage })
	if moved && m.Spec.CloneMode == infrav1.CloneLinked {
		return nil, kit.InvalidSpec("the disks of a linked clone are on the storage of the template: set cloneMode to LinkedOrFull, or leave placement.storage out")
	}
	full := m.Spec.CloneMode == infrav1.CloneFull || moved
	form.Set("full", flag(full))
	if moved {
		form.Set("storage", s.Storage)
	}
	return form, nil
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// interfaceTypes and caches are the names of types and modes in the API.
var (
	interfaceTypes = map[proxmoxv1.NovaProxmoxInterfaceType]string{"": "virtio", "VirtIO": "virtio", "E1000": "e1000", "E1000e": "e1000e", "RTL8139": "rtl8139", "VMXNET3": "vmxnet3"}
	caches         = map[proxmoxv1.NovaProxmoxCache]string{"None": "none", "WriteThrough": "writethrough", "WriteBack": "writeback", "DirectSync": "directsync", "Unsafe": "unsafe"}
)

// Configuration returns the parameters of the request that configures a VM before its
// first boot. The VM is complete after it: it has all its tags. c is the configuration of
// the clone, and volume the image with the bootstrap data.
func Configuration(m *proxmoxv1.NovaProxmoxMachine, s *Settings, mark *Mark, c Config, have []string, volume string) (url.Values, error) {
	form, remove := url.Values{}, []string{}
	for name, value := range c {
		if isCloudInit(name, value) && name != ISODrive {
			remove = append(remove, name)
		}
	}
	// The template may have got interfaces after its configuration was read. Proxmox VE
	// ignores those that do not exist.
	for i := range maxInterfaces {
		name := "net" + strconv.Itoa(i)
		if i < len(s.Interfaces) {
			form.Set(name, nic(mark.ID, &s.Interfaces[i], i))
		} else {
			remove = append(remove, name)
		}
	}
	hardware(form, &m.Spec.Hardware)
	if m.Spec.StartOnBoot != nil {
		form.Set("onboot", flag(*m.Spec.StartOnBoot))
	}
	form.Set("agent", "enabled=1")
	form.Set(ISODrive, volume+",media=cdrom")
	manufacturer := base64.StdEncoding.EncodeToString([]byte("Proxmox"))
	form.Set("smbios1", "uuid="+mark.ID.String()+",manufacturer="+manufacturer+",base64=1")
	disks, err := disks(form, m, s, c)
	if err != nil {
		return nil, err
	}
	if ChangesDisks(m) {
		form.Set("digest", c["digest"])
	}
	form.Set("description", Description(m, mark, append(c.Disks(), disks...)))
	tags, _ := TagsWith(have, append(mark.Tags(), m.Spec.Tags...))
	form.Set("tags", strings.Join(tags, ";"))
	slices.Sort(remove)
	form.Set("delete", strings.Join(remove, ","))
	return form, nil
}

// nic returns the value of an interface.
func nic(id uuid.UUID, in *proxmoxv1.NovaProxmoxInterface, i int) string {
	value := fmt.Sprintf("%s=%s,bridge=%s", interfaceTypes[in.Type], MAC(id, in, i), in.Network)
	if in.VLAN != 0 {
		value += fmt.Sprintf(",tag=%d", in.VLAN)
	}
	if in.MTU != 0 {
		value += fmt.Sprintf(",mtu=%d", in.MTU)
	}
	if ptr.Deref(in.Firewall, false) {
		value += ",firewall=1"
	}
	return value
}

// hardware sets the parameters of the hardware that the spec sets.
func hardware(form url.Values, h *proxmoxv1.NovaProxmoxHardware) {
	if h.CPUs != 0 {
		all := max(h.CPUs, h.MaxCPUs)
		cores := cmp.Or(h.CPUTopology.CoresPerSocket, all)
		form.Set("cores", strconv.Itoa(int(cores)))
		form.Set("sockets", strconv.Itoa(int(all/cores)))
	}
	hotplug := "network,disk,usb" // the default
	if h.MaxCPUs != 0 {
		form.Set("vcpus", strconv.Itoa(int(h.CPUs)))
		hotplug += ",cpu"
	}
	if ptr.Deref(h.MemoryHotAdd, false) {
		hotplug += ",memory"
	}
	if h.MaxCPUs != 0 || h.MemoryHotAdd != nil {
		form.Set("hotplug", hotplug)
	}
	if h.NUMA != nil {
		form.Set("numa", flag(*h.NUMA))
	}
	// A kubelet assumes that the memory that it reads is available.
	form.Set("balloon", strconv.FormatInt(h.MinMemoryMiB, 10))
	if h.MemoryMiB != 0 {
		form.Set("memory", strconv.FormatInt(h.MemoryMiB, 10))
	}
	for name, value := range map[string]string{"cpu": h.CPUType, "machine": h.MachineType} {
		if value != "" {
			form.Set(name, value)
		}
	}
	for i, d := range h.PCIDevices {
		form.Set("hostpci"+strconv.Itoa(i), "mapping="+d.Mapping+",pcie="+flag(ptr.Deref(d.PCIe, false)))
	}
	switch h.Firmware {
	case infrav1.FirmwareEFI:
		form.Set("bios", "ovmf")
	case infrav1.FirmwareBIOS:
		form.Set("bios", "seabios")
	}
}

// ChangesDisks reports whether the configuration of a VM may create or change disks.
func ChangesDisks(m *proxmoxv1.NovaProxmoxMachine) bool {
	h := &m.Spec.Hardware
	return len(m.Spec.Disks.Data) > 0 || diskOptions(&m.Spec.Disks.Boot.NovaProxmoxDiskOptions) != "" || h.Firmware == infrav1.FirmwareEFI || ptr.Deref(h.TrustedPlatformModule, false)
}

// dataSerial begins the serial numbers of data disks.
const dataSerial = "nova-"

// hasSerial reports whether a disk has a serial number.
func (c Config) hasSerial(serial string) bool {
	return slices.ContainsFunc(c.Disks(), func(name string) bool { return option(c[name], "serial") == serial })
}

// disks sets the parameters of the disks, and returns the names of new ones.
func disks(form url.Values, m *proxmoxv1.NovaProxmoxMachine, s *Settings, c Config) ([]string, error) {
	boot := c.bootDisk()
	if boot == "" {
		return nil, kit.InvalidSpec("the template %q has no boot disk", s.Template.String())
	}
	if options := diskOptions(&m.Spec.Disks.Boot.NovaProxmoxDiskOptions); options != "" {
		own := map[string]bool{}
		for part := range strings.SplitSeq(strings.TrimPrefix(options, ","), ",") {
			name, _, _ := strings.Cut(part, "=")
			own[name] = true
		}
		kept := slices.DeleteFunc(strings.Split(c[boot], ","), func(part string) bool {
			name, _, _ := strings.Cut(part, "=")
			return own[name]
		})
		form.Set(boot, strings.Join(kept, ",")+options)
	}
	form.Set("boot", "order="+boot)
	own, _, _ := strings.Cut(c[boot], ":")
	var added []string
	add := func(name, value string) {
		form.Set(name, value)
		added = append(added, name)
	}
	at := cmp.Or(s.Storage, own)
	if h := &m.Spec.Hardware; h.Firmware == infrav1.FirmwareEFI && c["efidisk0"] == "" {
		add("efidisk0", at+":1,efitype=4m,pre-enrolled-keys="+flag(ptr.Deref(h.SecureBoot, false)))
	}
	if ptr.Deref(m.Spec.Hardware.TrustedPlatformModule, false) && c["tpmstate0"] == "" {
		add("tpmstate0", at+":1,version=v2.0")
	}
	slot := 0
	for i := range m.Spec.Disks.Data {
		d := &m.Spec.Disks.Data[i]
		if c.hasSerial(dataSerial + d.Name) {
			continue // an earlier request created it
		}
		for c["scsi"+strconv.Itoa(slot)] != "" {
			slot++
		}
		add("scsi"+strconv.Itoa(slot), fmt.Sprintf("%s:%d,serial=%s%s", cmp.Or(d.Storage, at), d.SizeGiB, dataSerial+d.Name, diskOptions(&d.NovaProxmoxDiskOptions)))
		slot++
	}
	return added, nil
}

// diskOptions returns the options of a disk, each with a comma before it.
func diskOptions(o *proxmoxv1.NovaProxmoxDiskOptions) string {
	var out []string
	if o.Cache != "" {
		out = append(out, ",cache="+caches[o.Cache])
	}
	if o.Discard != nil {
		out = append(out, ",discard="+map[bool]string{true: "on", false: "ignore"}[*o.Discard])
	}
	for _, f := range []struct {
		name string
		on   *bool
	}{{"iothread", o.IOThread}, {"ssd", o.SSD}, {"backup", o.Backup}} {
		if f.on != nil {
			out = append(out, ","+f.name+"="+flag(*f.on))
		}
	}
	return strings.Join(out, "")
}

// ForeignDisks returns the disks that would be deleted with a VM although they do not
// belong to its machine: volumes that another user added and that have the ID of the VM
// in their names. Volumes with the ID of another VM are kept in any case.
func ForeignDisks(vmid int, c Config, complete bool) ([]string, error) {
	_, marked, own := ReadDescription(c["description"])
	if complete && (!marked || len(own) == 0) {
		return nil, fmt.Errorf("the description of the VM no longer has the line %q, which lists the disks of the machine", disksLine)
	}
	var foreign []string
	for name, value := range c {
		_, volume, _ := strings.Cut(value, ":")
		volume, _, _ = strings.Cut(volume, ",")
		owned := strings.Contains(volume, fmt.Sprintf("vm-%d-", vmid))
		isDisk := slices.Contains(c.Disks(), name) || strings.HasPrefix(name, "unused")
		if complete && isDisk && owned && !slices.Contains(own, name) {
			foreign = append(foreign, name+" ("+value+")")
		}
	}
	slices.Sort(foreign)
	return foreign, nil
}

// Size returns the capacity of a machine.
func Size(c *proxmoxv1.NovaProxmoxClusterSpec, m *proxmoxv1.NovaProxmoxMachineSpec, site *Site, b *Bounds) (hypervisor.Size, error) {
	s, err := SettingsOf(c, m, "")
	if err != nil {
		return hypervisor.Size{}, err
	}
	if len(s.Nodes) == 0 && len(c.FailureDomains) > 0 && s.Template == (proxmoxv1.NovaProxmoxTemplate{}) {
		s.Template = c.FailureDomains[0].Template
	}
	templates, err := s.Templates(site, b)
	if err != nil {
		return hypervisor.Size{}, err
	}
	t := templates[0]
	out := hypervisor.Size{CPUs: cmp.Or(int64(m.Hardware.CPUs), int64(t.MaxCPU)), MemoryBytes: Memory(m, t), DiskBytes: max(m.Disks.Boot.SizeGiB<<30, t.MaxDisk)}
	for _, n := range site.Nodes {
		if n.Node == t.Node {
			out.Architecture = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[cmp.Or(n.Arch, "x86_64")]
		}
	}
	return out, nil
}

// Memory returns the memory of a VM in bytes.
func Memory(m *proxmoxv1.NovaProxmoxMachineSpec, template *pve.Resource) int64 {
	if m.Hardware.MemoryMiB != 0 {
		return m.Hardware.MemoryMiB << 20
	}
	return template.MaxMem
}
