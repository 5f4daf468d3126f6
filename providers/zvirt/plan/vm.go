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
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// Parts of the names of owned disks, between the name of the machine and the
// suffix.
const (
	bootDisk     = "boot"
	templateDisk = "template-"
	dataDisk     = "data-"
)

// CloneInputs are the resolved names in the request that creates a VM, by ID.
type CloneInputs struct {
	Cluster, DataCenter string
	Template            *ovirt.Template
	// InstanceType and Lease are empty if they are not set.
	InstanceType, Lease string
	Hosts               []string
	// Devices are the PCI devices of the host to which the VM is pinned, if the
	// spec sets PCI devices.
	Devices Devices
	// Domains are the IDs of the storage domains in the spec, by their names.
	Domains map[string]string
	// CPUProfile and Quota are empty if they are not set.
	CPUProfile, Quota string
	// DiskProfiles are read only if a disk references one.
	DiskProfiles DiskProfiles
}

// DiskProfiles are the IDs of disk profiles.
type DiskProfiles map[DiskProfile]string

// DiskProfile is a disk profile by the ID of its storage domain and its own
// name or ID.
type DiskProfile struct{ Domain, Name string }

// find returns the profile of a disk, or nil if the disk references none.
func (p DiskProfiles) find(disk, domain, name string) (*ovirt.Object, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // no profile is the usual answer, and no failure
	}
	if id := p[DiskProfile{Domain: domain, Name: name}]; id != "" {
		return ovirt.Ref(id), nil
	}
	return nil, hypervisor.Failure(infrav1.PlacementNotFoundReason,
		"the disk profile %q of the disk %s does not exist on the disk's storage domain, or the user cannot see it", name, disk)
}

// NamesDiskProfile reports whether a disk of a machine references a disk
// profile.
func NamesDiskProfile(s *zvirtv1.NovaZVirtDisks) bool {
	return s.Boot.Profile != "" ||
		slices.ContainsFunc(s.Template, func(d zvirtv1.NovaZVirtTemplateDisk) bool { return d.Profile != "" }) ||
		slices.ContainsFunc(s.Data, func(d zvirtv1.NovaZVirtDataDisk) bool { return d.Profile != "" })
}

// VM returns the body of the request that creates the VM.
func VM(m *zvirtv1.NovaZVirtMachine, l hypervisor.CreateOptions, at Placement, inputs CloneInputs, id uuid.UUID) (*ovirt.VM, error) {
	boot, err := initialization(m, l, at)
	if err != nil {
		return nil, err
	}
	vm := hardware(m.Spec.Hardware)
	mark := Mark{Devices: inputs.Devices.String(), ID: id, Zone: l.Zone, UserDataFormat: cmp.Or(l.Format, CloudConfig), Addresses: joinAddresses(staticAddresses(boot))}
	if vm.Name = m.Spec.VMName(m); vm.Name != m.Name {
		mark.Machine = m.Name
	}
	vm.Comment = mark.String()
	vm.Description = fmt.Sprintf("Cluster API machine %s/%s of cluster %s. Do not change or remove it here.",
		m.Namespace, m.Name, m.Labels[clusterv1.ClusterNameLabel])
	vm.Cluster, vm.Template, vm.InstanceType = ovirt.Ref(inputs.Cluster), ovirt.Ref(inputs.Template.ID), ovirt.Ref(inputs.InstanceType)
	vm.CPUProfile, vm.Quota = ovirt.Ref(inputs.CPUProfile), ovirt.Ref(inputs.Quota)
	vm.Initialization = boot
	if ha := m.Spec.HighAvailability; ha != (zvirtv1.NovaZVirtHighAvailability{}) {
		vm.HighAvailability = &ovirt.HighAvailability{Enabled: true, Priority: ha.GetPriority()}
	}
	if inputs.Lease != "" {
		vm.Lease = &ovirt.Lease{StorageDomain: ovirt.Ref(inputs.Lease)}
	}
	mode := m.Spec.MigrationMode
	if inputs.Devices.Host != "" {
		mode = cmp.Or(mode, zvirtv1.MigrationPinned) // such a VM cannot migrate
	}
	if mode != "" || len(inputs.Hosts) > 0 {
		vm.PlacementPolicy = &ovirt.PlacementPolicy{Affinity: migrationModes[mode]}
	}
	if len(inputs.Hosts) > 0 {
		vm.PlacementPolicy.Hosts = &ovirt.HostList{}
		for _, host := range inputs.Hosts {
			vm.PlacementPolicy.Hosts.Hosts = append(vm.PlacementPolicy.Hosts.Hosts, ovirt.Object{ID: host})
		}
	}
	vm.DiskAttachments, err = clonedDisks(m, at, inputs, id)
	return vm, err
}

// hardware returns the hardware of a VM that needs no look-up.
func hardware(h zvirtv1.NovaZVirtHardware) *ovirt.VM {
	vm := &ovirt.VM{
		Type: vmTypes[h.VMType], CustomCPUModel: h.CPUType, CPUPinningPolicy: cpuPinningPolicies[h.CPUPinningPolicy], Memory: h.MemoryMiB << 20,
		// A kubelet assumes that the memory that it reads is available.
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

// clonedDisks returns the settings of the template's disks in the VM. Each disk
// gets the name of an owned disk.
func clonedDisks(m *zvirtv1.NovaZVirtMachine, at Placement, inputs CloneInputs, id uuid.UUID) (*ovirt.DiskAttachments, error) {
	out := &ovirt.DiskAttachments{}
	if inputs.Template.DiskAttachments == nil {
		return out, nil
	}
	full := IsFullClone(&m.Spec, at, inputs)
	for _, a := range inputs.Template.DiskAttachments.Attachments {
		name, want := diskSettings(&m.Spec.Disks, a)
		if !full && !canBeLinked(want) {
			return nil, kit.InvalidSpec("a disk of a linked clone is thin and COW: set cloneMode to LinkedOrFull, or do not set format and provisioning of the disk %s", name)
		}
		disk := &ovirt.Disk{ID: a.ID, Alias: diskName(m.Name, name, id), Format: diskFormats[want.Format], Sparse: sparse(want.Provisioning), Quota: ovirt.Ref(inputs.Quota)}
		domain := inputs.Domains[cmp.Or(want.StorageDomain, at.StorageDomain)]
		if domain != "" {
			disk.StorageDomains = &ovirt.DomainList{Domains: []ovirt.Object{{ID: domain}}}
		} else if a.Disk != nil {
			domain = firstDomain(a.Disk)
		}
		var err error
		if disk.DiskProfile, err = inputs.DiskProfiles.find(name, domain, want.Profile); err != nil {
			return nil, err
		}
		out.Attachments = append(out.Attachments, ovirt.DiskAttachment{Disk: disk})
	}
	return out, nil
}

// IsFullClone reports whether the disks of the template are copied. The clone
// mode LinkedOrFull copies them if one of them cannot be thin, or if its
// storage domain differs: the engine stores thin disks in the storage domain of
// the template.
func IsFullClone(m *zvirtv1.NovaZVirtMachineSpec, at Placement, inputs CloneInputs) bool {
	switch m.CloneMode {
	case infrav1.CloneFull:
		return true
	case infrav1.CloneLinked:
		return false
	case infrav1.CloneLinkedOrFull:
	}
	return slices.ContainsFunc(TemplateAttachments(inputs.Template), func(a ovirt.DiskAttachment) bool {
		_, want := diskSettings(&m.Disks, a)
		domain := inputs.Domains[cmp.Or(want.StorageDomain, at.StorageDomain)]
		return !canBeLinked(want) || domain != "" && a.Disk != nil && a.Disk.StorageDomains != nil &&
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

// canBeLinked reports whether a disk with these settings can be a disk of a
// linked clone.
func canBeLinked(d zvirtv1.NovaZVirtBootDisk) bool {
	return d.Format != zvirtv1.DiskFormatRaw && d.Provisioning != zvirtv1.ZVirtProvisioningThick
}

// DefaultStorageDomains returns the storage domains of the template's disks for
// whose copies the spec sets no storage domain. The engine stores these copies
// in the same storage domains.
func DefaultStorageDomains(m *zvirtv1.NovaZVirtMachine, at Placement, t *ovirt.Template) []ovirt.Object {
	if at.StorageDomain != "" || t.DiskAttachments == nil {
		return nil
	}
	var out []ovirt.Object
	for _, a := range t.DiskAttachments.Attachments {
		if _, want := diskSettings(&m.Spec.Disks, a); want.StorageDomain == "" && a.Disk != nil && a.Disk.StorageDomains != nil {
			out = append(out, a.Disk.StorageDomains.Domains...)
		}
	}
	return out
}

// diskSettings returns the name part and the settings of a template's disk.
func diskSettings(s *zvirtv1.NovaZVirtDisks, a ovirt.DiskAttachment) (string, zvirtv1.NovaZVirtBootDisk) {
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
	return templateDisk + own, zvirtv1.NovaZVirtBootDisk{}
}
