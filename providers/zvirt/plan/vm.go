package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// What the names of our disks hold between the machine's name and the suffix.
const (
	bootDisk     = "boot"
	templateDisk = "template-"
	dataDisk     = "data-"
)

// Source is what the names in the request for a VM stand for, by ID.
type Source struct {
	Cluster, DataCenter string
	Template            *ovirt.Template
	// InstanceType and Lease are empty for none.
	InstanceType, Lease string
	Hosts               []string
	// Devices are those of the one host that the VM is pinned to, if it wants some.
	Devices Devices
	// Domains are the storage domains that are named, by their names.
	Domains map[string]string
	// CPUProfile and Quota are empty for none.
	CPUProfile, Quota string
	// DiskProfiles are read only if a disk names one.
	DiskProfiles DiskProfiles
}

// DiskProfiles are the IDs of disk profiles.
type DiskProfiles map[DiskProfile]string

// DiskProfile is a disk profile by the ID of its storage domain and its own name
// or ID.
type DiskProfile struct{ Domain, Name string }

// find returns the profile that a disk names, or nil if it names none.
func (p DiskProfiles) find(disk, domain, name string) (*ovirt.Object, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // no profile is the usual answer, and no failure
	}
	if id := p[DiskProfile{Domain: domain, Name: name}]; id != "" {
		return ovirt.Ref(id), nil
	}
	return nil, Failure(infrav1.PlacementNotFoundReason,
		"the disk profile %q of the disk %s does not exist on the disk's storage domain, or the user cannot see it", name, disk)
}

// NamesDiskProfile reports whether a disk of a machine names a disk profile.
func NamesDiskProfile(s *infrav1.NovaZVirtDisks) bool {
	return s.Boot.Profile != "" ||
		slices.ContainsFunc(s.Template, func(d infrav1.NovaZVirtTemplateDisk) bool { return d.Profile != "" }) ||
		slices.ContainsFunc(s.Data, func(d infrav1.NovaZVirtDataDisk) bool { return d.Profile != "" })
}

// VM is what to ask for.
func VM(m *infrav1.NovaZVirtMachine, l hypervisor.CreateOptions, at Site, from Source, id uuid.UUID) (*ovirt.VM, error) {
	boot, err := initialization(m, l, at)
	if err != nil {
		return nil, err
	}
	vm := hardware(m.Spec.Hardware)
	mark := Mark{Devices: from.Devices.String(), ID: id, Zone: l.Zone, Document: cmp.Or(l.Format, CloudConfig), Addresses: joined(static(boot))}
	if vm.Name = m.Spec.VMName(m); vm.Name != m.Name {
		mark.Machine = m.Name
	}
	vm.Comment = mark.String()
	vm.Description = fmt.Sprintf("Cluster API machine %s/%s of cluster %s. Do not change or remove it here.",
		m.Namespace, m.Name, m.Labels[clusterv1.ClusterNameLabel])
	vm.Cluster, vm.Template, vm.InstanceType = ovirt.Ref(from.Cluster), ovirt.Ref(from.Template.ID), ovirt.Ref(from.InstanceType)
	vm.CPUProfile, vm.Quota = ovirt.Ref(from.CPUProfile), ovirt.Ref(from.Quota)
	vm.Initialization = boot
	if ha := m.Spec.HighAvailability; ha != (infrav1.NovaZVirtHighAvailability{}) {
		vm.HighAvailability = &ovirt.HighAvailability{Enabled: true, Priority: ha.GetPriority()}
	}
	if from.Lease != "" {
		vm.Lease = &ovirt.Lease{StorageDomain: ovirt.Ref(from.Lease)}
	}
	mode := m.Spec.MigrationMode
	if from.Devices.Host != "" {
		mode = cmp.Or(mode, infrav1.MigrationPinned) // such a VM cannot migrate
	}
	if mode != "" || len(from.Hosts) > 0 {
		vm.PlacementPolicy = &ovirt.PlacementPolicy{Affinity: migrationModes[mode]}
	}
	if len(from.Hosts) > 0 {
		vm.PlacementPolicy.Hosts = &ovirt.HostList{}
		for _, host := range from.Hosts {
			vm.PlacementPolicy.Hosts.Hosts = append(vm.PlacementPolicy.Hosts.Hosts, ovirt.Object{ID: host})
		}
	}
	vm.DiskAttachments, err = copies(m, at, from, id)
	return vm, err
}

// hardware is what a VM gets that needs no look-up.
func hardware(h infrav1.NovaZVirtHardware) *ovirt.VM {
	vm := &ovirt.VM{
		Type: vmTypes[h.VMType], CustomCPUModel: h.CPUType, CPUPinningPolicy: cpuPinningPolicies[h.CPUPinningPolicy], Memory: h.MemoryMiB << 20,
		// A kubelet takes the memory that it sees for its own.
		MemoryPolicy: &ovirt.MemoryPolicy{
			Ballooning: ptr.To(ptr.Deref(h.Ballooning, false)), Max: h.MaxMemoryMiB << 20,
			Guaranteed: cmp.Or(h.MemoryReservationMiB, h.MemoryMiB) << 20,
		},
	}
	if h.CPUs > 0 {
		threads := max(h.CPUTopology.ThreadsPerCore, 1)
		cores := cmp.Or(h.CPUTopology.CoresPerSocket, h.CPUs/threads)
		vm.CPU = &ovirt.CPU{Topology: &ovirt.Topology{Sockets: int64(h.CPUs / (cores * threads)), Cores: int64(cores), Threads: int64(threads)}}
	}
	if h.CPUMode != "" {
		if vm.CPU == nil {
			vm.CPU = &ovirt.CPU{}
		}
		vm.CPU.Mode = cpuModes[h.CPUMode]
	}
	if h.OSType != "" {
		vm.OS = &ovirt.OS{Type: h.OSType}
	}
	vm.TPMEnabled = h.TrustedPlatformModule
	if h.Firmware != "" {
		vm.BIOS = &ovirt.BIOS{Type: biosType(h)}
	}
	if h.SerialConsole != nil {
		vm.Console = &ovirt.Switch{Enabled: *h.SerialConsole}
	}
	var properties []ovirt.CustomProperty
	for _, p := range h.CustomProperties {
		properties = append(properties, ovirt.CustomProperty{Name: p.Name, Value: p.Value})
	}
	if h.HugepagesKiB != 0 {
		properties = append(properties, ovirt.CustomProperty{Name: "hugepages", Value: strconv.Itoa(int(h.HugepagesKiB))})
	}
	if properties != nil {
		vm.CustomProperties = &ovirt.CustomProperties{Properties: properties}
	}
	return vm
}

// copies says what becomes of the template's disks. Each gets a name of ours.
func copies(m *infrav1.NovaZVirtMachine, at Site, from Source, id uuid.UUID) (*ovirt.DiskAttachments, error) {
	out := &ovirt.DiskAttachments{}
	if from.Template.DiskAttachments == nil {
		return out, nil
	}
	full := IsFull(&m.Spec, at, from)
	for _, a := range from.Template.DiskAttachments.Attachments {
		name, want := wanted(&m.Spec.Disks, a)
		if !full && !thin(want) {
			return nil, hopeless("a disk of a linked clone is thin and COW: set cloneMode to LinkedOrFull, or leave format and provisioning of the disk %s out", name)
		}
		disk := &ovirt.Disk{ID: a.ID, Alias: diskName(m.Name, name, id), Format: diskFormats[want.Format], Sparse: sparse(want.Provisioning), Quota: ovirt.Ref(from.Quota)}
		domain := from.Domains[cmp.Or(want.StorageDomain, at.StorageDomain)]
		if domain != "" {
			disk.StorageDomains = &ovirt.DomainList{Domains: []ovirt.Object{{ID: domain}}}
		} else if a.Disk != nil {
			domain = firstDomain(a.Disk)
		}
		var err error
		if disk.DiskProfile, err = from.DiskProfiles.find(name, domain, want.Profile); err != nil {
			return nil, err
		}
		out.Attachments = append(out.Attachments, ovirt.DiskAttachment{Disk: disk})
	}
	return out, nil
}

// IsFull reports whether the disks of the template are copied. LinkedOrFull copies
// them if one of them cannot be thin: the engine stores thin disks where those of the
// template are.
func IsFull(m *infrav1.NovaZVirtMachineSpec, at Site, from Source) bool {
	switch m.CloneMode {
	case infrav1.CloneFull:
		return true
	case infrav1.CloneLinked:
		return false
	case infrav1.CloneLinkedOrFull:
	}
	return slices.ContainsFunc(TemplateAttachments(from.Template), func(a ovirt.DiskAttachment) bool {
		_, want := wanted(&m.Disks, a)
		domain := from.Domains[cmp.Or(want.StorageDomain, at.StorageDomain)]
		return !thin(want) || domain != "" && a.Disk != nil && a.Disk.StorageDomains != nil &&
			!slices.ContainsFunc(a.Disk.StorageDomains.Domains, func(o ovirt.Object) bool { return o.ID == domain })
	})
}

// TemplateAttachments returns the disks of a template.
func TemplateAttachments(t *ovirt.Template) []ovirt.DiskAttachment {
	if t.DiskAttachments == nil {
		return nil
	}
	return t.DiskAttachments.Attachments
}

// thin reports whether a disk can be that of a linked clone.
func thin(d infrav1.NovaZVirtBootDisk) bool {
	return d.Format != infrav1.DiskFormatRaw && d.Provisioning != infrav1.ZVirtProvisioningThick
}

// LeftInPlace returns the storage domains of the template's disks for whose
// copies nothing names a storage domain: the engine stores them there, too.
func LeftInPlace(m *infrav1.NovaZVirtMachine, at Site, t *ovirt.Template) []ovirt.Object {
	if at.StorageDomain != "" || t.DiskAttachments == nil {
		return nil
	}
	var out []ovirt.Object
	for _, a := range t.DiskAttachments.Attachments {
		if _, want := wanted(&m.Spec.Disks, a); want.StorageDomain == "" && a.Disk != nil && a.Disk.StorageDomains != nil {
			out = append(out, a.Disk.StorageDomains.Domains...)
		}
	}
	return out
}

// wanted returns our name for a template's disk and what is to become of it.
func wanted(s *infrav1.NovaZVirtDisks, a ovirt.DiskAttachment) (string, infrav1.NovaZVirtBootDisk) {
	if ptr.Deref(a.Bootable, false) {
		return bootDisk, s.Boot
	}
	own := a.ID
	if a.Disk != nil {
		own = cmp.Or(a.Disk.Alias, a.Disk.Name, own)
	}
	for _, named := range s.Template {
		if named.Name == own {
			return templateDisk + own, named.NovaZVirtBootDisk
		}
	}
	return templateDisk + own, infrav1.NovaZVirtBootDisk{}
}
