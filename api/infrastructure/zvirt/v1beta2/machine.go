package v1beta2

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaZVirtMachineSpec is the VM of a machine.
// +kubebuilder:validation:XValidation:rule="!has(self.highAvailability) || !has(self.migrationMode) || self.migrationMode == 'Migratable'",message="a highly available VM must be migratable: leave migrationMode out, or set it to Migratable"
// +kubebuilder:validation:XValidation:rule="!has(self.highAvailability) || !has(self.hardware) || !has(self.hardware.pciDevices)",message="a VM with pciDevices runs on one host only: leave highAvailability out"
// +kubebuilder:validation:XValidation:rule="!has(self.cloneMode) || self.cloneMode != 'Linked' || !has(self.disks) || !has(self.disks.boot) || !((has(self.disks.boot.format) && self.disks.boot.format == 'Raw') || (has(self.disks.boot.provisioning) && self.disks.boot.provisioning == 'Thick'))",message="a disk of a linked clone is thin and COW: set cloneMode to LinkedOrFull, or leave format and provisioning of disks.boot out"
// +kubebuilder:validation:XValidation:rule="!has(self.cloneMode) || self.cloneMode != 'Linked' || !has(self.disks) || !has(self.disks.template) || !self.disks.template.exists(d, (has(d.format) && d.format == 'Raw') || (has(d.provisioning) && d.provisioning == 'Thick'))",message="a disk of a linked clone is thin and COW: set cloneMode to LinkedOrFull, or leave format and provisioning of disks.template out"
type NovaZVirtMachineSpec struct {
	infrav1.MachineSpec `json:",inline"`

	// template is the template that the VM is created from. A machine template with
	// another value, once it is referenced, rolls out machines. If not set, the
	// template of the cluster is used.
	// +optional
	Template NovaZVirtTemplate `json:"template,omitempty,omitzero"`

	// cloneMode is Full, Linked or LinkedOrFull. Full copies the disks of the
	// template. Linked stores only differences from the template (the engine calls it
	// thin); the engine does not delete the template while such VMs exist.
	// LinkedOrFull is Full if a disk is to have another storage domain than in the
	// template, the format Raw or the provisioning Thick. A machine template with
	// another value, once it is referenced, rolls out machines. Defaults to
	// LinkedOrFull.
	// +optional
	CloneMode infrav1.CloneMode `json:"cloneMode,omitempty"`

	// placement is where the VM is created. A machine template with another value,
	// once it is referenced, rolls out machines. Fields that are not set have the
	// value of the cluster.
	// +optional
	Placement NovaZVirtPlacement `json:"placement,omitempty,omitzero"`

	// migrationMode controls whether the VM can move between hosts: Migratable,
	// UserMigratable (only by a user) or Pinned (never). A machine template with
	// another value, once it is referenced, rolls out machines. If not set, the
	// setting of the template is used.
	// +optional
	MigrationMode NovaZVirtMigrationMode `json:"migrationMode,omitempty"`

	// hardware is the virtual hardware of the VM. A machine template with another
	// value, once it is referenced, rolls out machines; cpus and memoryMiB can increase
	// in place with rollout.inPlace. If not set, the VM has the
	// hardware of the template.
	// +optional
	Hardware NovaZVirtHardware `json:"hardware,omitempty,omitzero"`

	// disks are the disks of the VM. A machine template with another value, once it is
	// referenced, rolls out machines. If not set, the VM has the disks of the
	// template.
	// +optional
	Disks NovaZVirtDisks `json:"disks,omitempty,omitzero"`

	// network has the network interfaces of the VM. A machine template with another
	// value, once it is referenced, rolls out machines. If not set, the VM has one
	// interface on the network of the cluster, which requests an IPv4 address by DHCP.
	// +optional
	Network NovaZVirtNetwork `json:"network,omitempty,omitzero"`

	// highAvailability lets the engine restart the VM when its host fails. A machine
	// template with another value, once it is referenced, rolls out machines. If not
	// set, the setting of the template is used.
	// +optional
	HighAvailability NovaZVirtHighAvailability `json:"highAvailability,omitempty,omitzero"`

	// affinityGroups are the names of affinity groups of the engine's cluster that the
	// VM joins. They must exist. A machine template with another value, once it is
	// referenced, rolls out machines. If not set, the VM is only in the group of
	// antiAffinity.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	AffinityGroups []string `json:"affinityGroups,omitempty"`

	// affinityLabels are the names of affinity labels of the VM. They must exist. A
	// machine template with another value, once it is referenced, rolls out machines.
	// If not set, the VM has only that of its failure domain.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=50
	AffinityLabels []string `json:"affinityLabels,omitempty"`

	// tags are attached to the VM. They must exist. They can change in a machine,
	// which is not replaced. A tag that is removed from the list stays on the VM. If
	// not set, no tags are attached.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Tags []NovaZVirtTag `json:"tags,omitempty"`
}

// NovaZVirtTag is a tag.
type NovaZVirtTag struct {
	// name is the name of the tag.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	Name string `json:"name,omitempty"`
}

// NovaZVirtTemplate is the template that VMs are created from.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.id)",message="set exactly one of name and id"
// +kubebuilder:validation:XValidation:rule="!has(self.version) || has(self.name)",message="version belongs to name: an id names one version already"
type NovaZVirtTemplate struct {
	// name is the name of the template. Mutually exclusive with id.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`

	// id is the ID of the template. Mutually exclusive with name.
	// +optional
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Format=uuid
	ID string `json:"id,omitempty"`

	// version is the number of the version of the template. If not set, the latest
	// version at the time of the creation of the VM is used.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Version int32 `json:"version,omitempty"`
}

// String describes the template for people.
func (t *NovaZVirtTemplate) String() string { return cmp.Or(t.Name, t.ID) }

// NovaZVirtMigrationMode controls whether a VM can move between hosts.
// +kubebuilder:validation:Enum=Migratable;UserMigratable;Pinned
type NovaZVirtMigrationMode string

// Values of NovaZVirtMigrationMode.
const (
	MigrationMigratable     NovaZVirtMigrationMode = "Migratable"
	MigrationUserMigratable NovaZVirtMigrationMode = "UserMigratable"
	MigrationPinned         NovaZVirtMigrationMode = "Pinned"
)

// NovaZVirtHardware is the virtual hardware of a VM.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.instanceType) || !(has(self.memoryMiB) || has(self.memoryReservationMiB) || has(self.maxMemoryMiB) || has(self.cpus) || has(self.cpuTopology))",message="an instanceType has CPUs and memory: set either it or cpus and memory"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuTopology) || (has(self.cpus) && self.cpus % ((has(self.cpuTopology.coresPerSocket) ? self.cpuTopology.coresPerSocket : 1) * (has(self.cpuTopology.threadsPerCore) ? self.cpuTopology.threadsPerCore : 1)) == 0)",message="cpus must be set and be a multiple of cpuTopology.coresPerSocket times cpuTopology.threadsPerCore"
// +kubebuilder:validation:XValidation:rule="!has(self.memoryReservationMiB) || (has(self.memoryMiB) && self.memoryReservationMiB <= self.memoryMiB)",message="memoryReservationMiB needs memoryMiB and cannot be more than it"
// +kubebuilder:validation:XValidation:rule="!has(self.maxMemoryMiB) || (has(self.memoryMiB) && self.maxMemoryMiB >= self.memoryMiB)",message="maxMemoryMiB needs memoryMiB and cannot be less than it"
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || (has(self.firmware) && self.firmware == 'EFI')",message="secureBoot needs the firmware EFI"
// +kubebuilder:validation:XValidation:rule="!has(self.trustedPlatformModule) || !self.trustedPlatformModule || (has(self.firmware) && self.firmware == 'EFI')",message="trustedPlatformModule needs the firmware EFI"
type NovaZVirtHardware struct {
	// instanceType is the name or ID of an instance type, which has CPUs and memory.
	// If not set, the VM has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	InstanceType string `json:"instanceType,omitempty"`

	// cpus is the number of virtual CPUs. If not set, the VM has as many as the
	// template.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CPUs int32 `json:"cpus,omitempty"`

	// cpuTopology defines how the virtual CPUs are divided into sockets and threads. If
	// not set, the VM has one socket, and one thread for each core.
	// +optional
	CPUTopology NovaZVirtCPUTopology `json:"cpuTopology,omitempty,omitzero"`

	// memoryMiB is the memory in MiB, a multiple of 4. If not set, the VM has as much
	// as the template.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=25165824
	// +kubebuilder:validation:MultipleOf=4
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// memoryReservationMiB is the memory in MiB that is reserved for the VM on its
	// host (the engine calls it guaranteed memory). If not set, all memory is
	// reserved: a kubelet counts on the memory that it sees.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=25165824
	MemoryReservationMiB int64 `json:"memoryReservationMiB,omitempty"`

	// maxMemoryMiB is the most memory in MiB that the VM can get by hot plug. If not
	// set, the engine uses four times the memory.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=25165824
	MaxMemoryMiB int64 `json:"maxMemoryMiB,omitempty"`

	// ballooning lets the host reclaim unused memory. The kubelet does not notice
	// it. Defaults to false.
	// +optional
	Ballooning *bool `json:"ballooning,omitempty"`

	// hugepagesKiB is the size of the huge pages that back the memory, in KiB. If not
	// set, no huge pages are used.
	// +optional
	// +kubebuilder:validation:Minimum=2048
	// +kubebuilder:validation:Enum=2048;1048576
	HugepagesKiB int32 `json:"hugepagesKiB,omitempty"`

	// cpuType is the type of CPU that the VM sees, by its name in the engine, such as
	// Cascadelake-Server. If not set, it is the CPU type of the cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	CPUType string `json:"cpuType,omitempty"`

	// cpuMode is Custom, HostModel or HostPassthrough. HostPassthrough shows the CPU
	// of the host without changes, HostModel a similar one, Custom that of cpuType.
	// If not set, the VM sees cpuType.
	// +optional
	CPUMode NovaZVirtCPUMode `json:"cpuMode,omitempty"`

	// cpuPinningPolicy pins virtual CPUs to CPUs of the host: None, ResizeAndPinNUMA,
	// Dedicated or IsolateThreads. ResizeAndPinNUMA also gives the VM the NUMA
	// topology of the host. It needs an engine 4.5. If not set, the policy of the
	// template is used.
	// +optional
	CPUPinningPolicy NovaZVirtCPUPinningPolicy `json:"cpuPinningPolicy,omitempty"`

	// cpuProfile is the name or ID of a CPU profile of the engine's cluster, which
	// limits the CPU time of the VM. If not set, the engine uses the first profile of
	// the cluster that the user may use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	CPUProfile string `json:"cpuProfile,omitempty"`

	// vmType is the purpose that the engine optimizes the VM for: Server,
	// HighPerformance or Desktop. If not set, it is that of the template.
	// +optional
	VMType NovaZVirtVMType `json:"vmType,omitempty"`

	// osType is the operating system by its name in the engine, such as rhel_9x64 or
	// debian_9. Ignition works only with a name for which the engine supports it. If
	// not set, it is that of the template.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	OSType string `json:"osType,omitempty"`

	// firmware is the firmware that the VM boots with: BIOS or EFI, with the chipset
	// Q35. The boot disk of the template must support it. If not set, the firmware of
	// the template is used.
	// +optional
	Firmware infrav1.Firmware `json:"firmware,omitempty"`

	// secureBoot starts signed boot loaders only. It needs the firmware EFI. If not
	// set, firmware EFI has no secure boot.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`

	// trustedPlatformModule gives the VM its own virtual TPM 2.0. It needs the
	// firmware EFI. If not set, the setting of the template is used.
	// +optional
	TrustedPlatformModule *bool `json:"trustedPlatformModule,omitempty"`

	// headless removes the graphical consoles. Defaults to false.
	// +optional
	Headless *bool `json:"headless,omitempty"`

	// serialConsole adds a serial console. If not set, the setting of the template is
	// used.
	// +optional
	SerialConsole *bool `json:"serialConsole,omitempty"`

	// pciDevices are devices of the host that are passed through. The VM is pinned to
	// a host with free devices: one of placement.hosts, or any of the cluster. The
	// user needs an administrative role. If not set, none are passed through.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	PCIDevices []NovaZVirtPCIDevice `json:"pciDevices,omitempty"`

	// customProperties are custom properties of the VM, except hugepages, which is
	// hugepagesKiB. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	CustomProperties []NovaZVirtCustomProperty `json:"customProperties,omitempty"`
}

// NovaZVirtPCIDevice is a type of device of hosts.
type NovaZVirtPCIDevice struct {
	// vendorID is the PCI vendor ID as a decimal number, such as 4318 for NVIDIA.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	VendorID int32 `json:"vendorID,omitempty"`

	// deviceID is the PCI device ID as a decimal number.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	DeviceID int32 `json:"deviceID,omitempty"`
}

// NovaZVirtCPUTopology defines how the virtual CPUs are divided.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtCPUTopology struct {
	infrav1.CPUTopology `json:",inline"`

	// threadsPerCore is the number of threads of each core. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	ThreadsPerCore int32 `json:"threadsPerCore,omitempty"`
}

// NovaZVirtCPUMode is a mode of the CPU.
// +kubebuilder:validation:Enum=Custom;HostModel;HostPassthrough
type NovaZVirtCPUMode string

// Values of NovaZVirtCPUMode.
const (
	CPUModeCustom          NovaZVirtCPUMode = "Custom"
	CPUModeHostModel       NovaZVirtCPUMode = "HostModel"
	CPUModeHostPassthrough NovaZVirtCPUMode = "HostPassthrough"
)

// NovaZVirtCPUPinningPolicy is a way to pin virtual CPUs to CPUs of the host.
// +kubebuilder:validation:Enum=None;ResizeAndPinNUMA;Dedicated;IsolateThreads
type NovaZVirtCPUPinningPolicy string

// Values of NovaZVirtCPUPinningPolicy.
const (
	CPUPinningNone             NovaZVirtCPUPinningPolicy = "None"
	CPUPinningResizeAndPinNUMA NovaZVirtCPUPinningPolicy = "ResizeAndPinNUMA"
	CPUPinningDedicated        NovaZVirtCPUPinningPolicy = "Dedicated"
	CPUPinningIsolateThreads   NovaZVirtCPUPinningPolicy = "IsolateThreads"
)

// NovaZVirtVMType is a purpose that the engine optimizes VMs for.
// +kubebuilder:validation:Enum=Server;HighPerformance;Desktop
type NovaZVirtVMType string

// Values of NovaZVirtVMType.
const (
	VMTypeServer          NovaZVirtVMType = "Server"
	VMTypeHighPerformance NovaZVirtVMType = "HighPerformance"
	VMTypeDesktop         NovaZVirtVMType = "Desktop"
)

// NovaZVirtCustomProperty is a custom property of a VM.
type NovaZVirtCustomProperty struct {
	// name is the name of the property.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'hugepages'",message="use hugepagesKiB instead of the property hugepages"
	Name string `json:"name,omitempty"`

	// value is the value of the property.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// NovaZVirtDisks are the disks of a VM.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtDisks struct {
	// boot is the boot disk of the template. If not set, it is not changed.
	// +optional
	Boot NovaZVirtBootDisk `json:"boot,omitempty,omitzero"`

	// template are the other disks of the template. Disks that are not in the list
	// are not changed. If not set, no such disk is changed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=23
	Template []NovaZVirtTemplateDisk `json:"template,omitempty"`

	// data are additional empty disks. They are deleted with the VM. If not set,
	// there are none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=23
	// +kubebuilder:validation:XValidation:rule="self.filter(d, has(d.bootable) && d.bootable).size() <= 1",message="a VM boots from one disk: only one can be bootable"
	Data []NovaZVirtDataDisk `json:"data,omitempty"`
}

// NovaZVirtProvisioning controls when the space of a disk is allocated.
// +kubebuilder:validation:Enum=Thin;Thick
type NovaZVirtProvisioning string

// Values of NovaZVirtProvisioning.
const (
	// ZVirtProvisioningThin allocates space when it is written.
	ZVirtProvisioningThin NovaZVirtProvisioning = "Thin"
	// ZVirtProvisioningThick allocates all space at once.
	ZVirtProvisioningThick NovaZVirtProvisioning = "Thick"
)

// NovaZVirtDiskFormat is the format of a disk.
// +kubebuilder:validation:Enum=Raw;COW
type NovaZVirtDiskFormat string

// Values of NovaZVirtDiskFormat.
const (
	DiskFormatRaw NovaZVirtDiskFormat = "Raw"
	DiskFormatCOW NovaZVirtDiskFormat = "COW"
)

// NovaZVirtDiskInterface is the interface of a disk.
// +kubebuilder:validation:Enum=VirtIOSCSI;VirtIO;SATA
type NovaZVirtDiskInterface string

// Values of NovaZVirtDiskInterface.
const (
	DiskInterfaceVirtIOSCSI NovaZVirtDiskInterface = "VirtIOSCSI"
	DiskInterfaceVirtIO     NovaZVirtDiskInterface = "VirtIO"
	DiskInterfaceSATA       NovaZVirtDiskInterface = "SATA"
)

// NovaZVirtBootDisk is a disk of the template.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtBootDisk struct {
	// sizeGiB is the size that the disk is grown to. If not set, the size is not
	// changed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	SizeGiB int64 `json:"sizeGiB,omitempty"`

	// storageDomain is the name or ID of the storage domain. If not set, the storage
	// domain of the placement is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StorageDomain string `json:"storageDomain,omitempty"`

	// format is Raw or COW. Raw needs a full clone. If not set, the format of the
	// template is used.
	// +optional
	Format NovaZVirtDiskFormat `json:"format,omitempty"`

	// provisioning is Thin or Thick. Thick needs a full clone. If not set, the
	// provisioning of the template is used.
	// +optional
	Provisioning NovaZVirtProvisioning `json:"provisioning,omitempty"`

	// profile is the name or ID of a disk profile of the storage domain, which
	// limits throughput and IOPS. If not set, the engine uses the first profile of
	// the storage domain that the user may use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Profile string `json:"profile,omitempty"`
}

// NovaZVirtTemplateDisk is a disk of the template other than the boot disk.
type NovaZVirtTemplateDisk struct {
	// name is the name (alias) of the disk of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`

	NovaZVirtBootDisk `json:",inline"`
}

// NovaZVirtDataDisk is an empty disk.
// +kubebuilder:validation:XValidation:rule="!has(self.format) || self.format != 'COW' || !has(self.provisioning) || self.provisioning == 'Thin'",message="a COW disk is thin: leave provisioning out, or set format to Raw"
type NovaZVirtDataDisk struct {
	// name is the name of the disk in this list. The engine shows it between the name
	// of the machine and a suffix.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// sizeGiB is the size of the disk.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	SizeGiB int64 `json:"sizeGiB,omitempty"`

	// storageDomain is the name or ID of the storage domain. If not set, the storage
	// domain of the placement is used, or else that of the boot disk.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StorageDomain string `json:"storageDomain,omitempty"`

	// format is Raw or COW. Defaults to Raw if provisioning is Thick, and to COW
	// otherwise.
	// +optional
	Format NovaZVirtDiskFormat `json:"format,omitempty"`

	// provisioning is Thin or Thick. Defaults to Thin.
	// +optional
	Provisioning NovaZVirtProvisioning `json:"provisioning,omitempty"`

	// profile is the name or ID of a disk profile of the storage domain, which
	// limits throughput and IOPS. If not set, the engine uses the first profile of
	// the storage domain that the user may use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Profile string `json:"profile,omitempty"`

	// interface is VirtIOSCSI, VirtIO or SATA. Defaults to VirtIOSCSI.
	// +optional
	Interface NovaZVirtDiskInterface `json:"interface,omitempty"`

	// bootable lets the VM boot from this disk. It is for templates without a boot
	// disk. Defaults to false.
	// +optional
	Bootable *bool `json:"bootable,omitempty"`
}

// NovaZVirtNetwork has the network interfaces of a VM.
type NovaZVirtNetwork struct {
	// interfaces are the network interfaces of the VM in order. They replace those
	// of the template.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Interfaces []NovaZVirtInterface `json:"interfaces,omitempty"`
}

// NovaZVirtInterfaceType is a type of network adapter.
// +kubebuilder:validation:Enum=VirtIO;E1000;E1000e;RTL8139;SRIOV
type NovaZVirtInterfaceType string

// Values of NovaZVirtInterfaceType.
const (
	ZVirtInterfaceVirtIO  NovaZVirtInterfaceType = "VirtIO"
	ZVirtInterfaceE1000   NovaZVirtInterfaceType = "E1000"
	ZVirtInterfaceE1000e  NovaZVirtInterfaceType = "E1000e"
	ZVirtInterfaceRTL8139 NovaZVirtInterfaceType = "RTL8139"
	// ZVirtInterfaceSRIOV is a virtual function of a network adapter of the host.
	ZVirtInterfaceSRIOV NovaZVirtInterfaceType = "SRIOV"
)

// NovaZVirtInterface is a network interface. The engine can give an interface DHCP,
// or one address and gateway of each family. The guest uses the name servers of the
// first interface that has some.
// +kubebuilder:validation:XValidation:rule="!has(self.addresses) || (self.addresses.filter(a, isCIDR(a) && cidr(a).ip().family() == 4).size() <= 1 && self.addresses.filter(a, isCIDR(a) && cidr(a).ip().family() == 6).size() <= 1)",message="the engine can give an interface one address of each family"
type NovaZVirtInterface struct {
	// network is the vNIC profile as network/profile, or its ID. A vNIC profile
	// belongs to one network. If not set, the network of the cluster is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`

	// type is the type of network adapter: VirtIO, E1000, E1000e, RTL8139 or SRIOV.
	// SRIOV needs a vNIC profile with passthrough. Defaults to VirtIO.
	// +optional
	Type NovaZVirtInterfaceType `json:"type,omitempty"`

	// deviceName is the name that the interface has in the guest, such as enp1s0. The
	// engine configures addresses by this name. If not set, it is eth and the index
	// of the interface.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_.-]*$`
	DeviceName string `json:"deviceName,omitempty"`

	infrav1.InterfaceAddressing `json:",inline"`

	// failureDomains are the settings of this interface in failure domains that have
	// a network of their own. If not set, machines have the same settings in all
	// failure domains.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	FailureDomains []infrav1.InterfaceFailureDomain `json:"failureDomains,omitempty"`
}

// NovaZVirtHighAvailability lets the engine restart a VM when its host fails.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtHighAvailability struct {
	// priority is the priority of the restart, from 1 to 100. VMs with a higher
	// priority are restarted first. Defaults to 50.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Priority int32 `json:"priority,omitempty"`

	// leaseStorageDomain is the name or ID of a storage domain for a lease, with
	// which the VM never runs twice when its host cannot be reached. If not set, there
	// is no lease.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	LeaseStorageDomain string `json:"leaseStorageDomain,omitempty"`
}

// DefaultZVirtPriority is the default priority of a highly available VM.
const DefaultZVirtPriority = 50

// GetPriority returns the priority of the restart.
func (h *NovaZVirtHighAvailability) GetPriority() int32 {
	return cmp.Or(h.Priority, DefaultZVirtPriority)
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtmachines,scope=Namespaced,categories=cluster-api,shortName=novazvma
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Machine')].name",description="Machine that owns it",priority=10
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the VM is up"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='VirtualMachineProvisioned')].reason",description="Reason of VirtualMachineProvisioned"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address",description="Internal addresses"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.host",description="Host the VM runs on"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.name",description="Template in the engine",priority=10
// +kubebuilder:printcolumn:name="VM",type="string",JSONPath=".status.vmID",description="ID of the VM in the hypervisor",priority=10
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of Ready"

// NovaZVirtMachine is a machine that is a VM on a zVirt or oVirt engine.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name becomes the node's name and can have at most 63 characters"
type NovaZVirtMachine struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Only providerID, powerOff, antiAffinity and tags can
	// change, and hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase
	// while Cluster API updates the machine in place.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.template) == has(oldSelf.template) && has(self.cloneMode) == has(oldSelf.cloneMode) && has(self.placement) == has(oldSelf.placement) && has(self.migrationMode) == has(oldSelf.migrationMode) && has(self.hardware) == has(oldSelf.hardware) && has(self.disks) == has(oldSelf.disks) && has(self.network) == has(oldSelf.network) && has(self.highAvailability) == has(oldSelf.highAvailability) && has(self.affinityGroups) == has(oldSelf.affinityGroups) && has(self.affinityLabels) == has(oldSelf.affinityLabels) && has(self.naming) == has(oldSelf.naming)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="(!has(self.template) || !has(oldSelf.template) || self.template == oldSelf.template) && (!has(self.cloneMode) || !has(oldSelf.cloneMode) || self.cloneMode == oldSelf.cloneMode) && (!has(self.placement) || !has(oldSelf.placement) || self.placement == oldSelf.placement) && (!has(self.migrationMode) || !has(oldSelf.migrationMode) || self.migrationMode == oldSelf.migrationMode) && (!has(self.network) || !has(oldSelf.network) || self.network == oldSelf.network) && (!has(self.highAvailability) || !has(oldSelf.highAvailability) || self.highAvailability == oldSelf.highAvailability) && (!has(self.affinityGroups) || !has(oldSelf.affinityGroups) || self.affinityGroups == oldSelf.affinityGroups) && (!has(self.affinityLabels) || !has(oldSelf.affinityLabels) || self.affinityLabels == oldSelf.affinityLabels) && (!has(self.naming) || !has(oldSelf.naming) || self.naming == oldSelf.naming)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.instanceType) == has(oldSelf.hardware.instanceType) && (!has(self.hardware.instanceType) || self.hardware.instanceType == oldSelf.hardware.instanceType) && has(self.hardware.cpuTopology) == has(oldSelf.hardware.cpuTopology) && (!has(self.hardware.cpuTopology) || self.hardware.cpuTopology == oldSelf.hardware.cpuTopology) && has(self.hardware.memoryReservationMiB) == has(oldSelf.hardware.memoryReservationMiB) && (!has(self.hardware.memoryReservationMiB) || self.hardware.memoryReservationMiB == oldSelf.hardware.memoryReservationMiB) && has(self.hardware.maxMemoryMiB) == has(oldSelf.hardware.maxMemoryMiB) && (!has(self.hardware.maxMemoryMiB) || self.hardware.maxMemoryMiB == oldSelf.hardware.maxMemoryMiB) && has(self.hardware.ballooning) == has(oldSelf.hardware.ballooning) && (!has(self.hardware.ballooning) || self.hardware.ballooning == oldSelf.hardware.ballooning) && has(self.hardware.hugepagesKiB) == has(oldSelf.hardware.hugepagesKiB) && (!has(self.hardware.hugepagesKiB) || self.hardware.hugepagesKiB == oldSelf.hardware.hugepagesKiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.cpuType) == has(oldSelf.hardware.cpuType) && (!has(self.hardware.cpuType) || self.hardware.cpuType == oldSelf.hardware.cpuType) && has(self.hardware.cpuMode) == has(oldSelf.hardware.cpuMode) && (!has(self.hardware.cpuMode) || self.hardware.cpuMode == oldSelf.hardware.cpuMode) && has(self.hardware.cpuPinningPolicy) == has(oldSelf.hardware.cpuPinningPolicy) && (!has(self.hardware.cpuPinningPolicy) || self.hardware.cpuPinningPolicy == oldSelf.hardware.cpuPinningPolicy) && has(self.hardware.cpuProfile) == has(oldSelf.hardware.cpuProfile) && (!has(self.hardware.cpuProfile) || self.hardware.cpuProfile == oldSelf.hardware.cpuProfile) && has(self.hardware.vmType) == has(oldSelf.hardware.vmType) && (!has(self.hardware.vmType) || self.hardware.vmType == oldSelf.hardware.vmType) && has(self.hardware.osType) == has(oldSelf.hardware.osType) && (!has(self.hardware.osType) || self.hardware.osType == oldSelf.hardware.osType))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.firmware) == has(oldSelf.hardware.firmware) && (!has(self.hardware.firmware) || self.hardware.firmware == oldSelf.hardware.firmware) && has(self.hardware.secureBoot) == has(oldSelf.hardware.secureBoot) && (!has(self.hardware.secureBoot) || self.hardware.secureBoot == oldSelf.hardware.secureBoot) && has(self.hardware.trustedPlatformModule) == has(oldSelf.hardware.trustedPlatformModule) && (!has(self.hardware.trustedPlatformModule) || self.hardware.trustedPlatformModule == oldSelf.hardware.trustedPlatformModule) && has(self.hardware.headless) == has(oldSelf.hardware.headless) && (!has(self.hardware.headless) || self.hardware.headless == oldSelf.hardware.headless) && has(self.hardware.serialConsole) == has(oldSelf.hardware.serialConsole) && (!has(self.hardware.serialConsole) || self.hardware.serialConsole == oldSelf.hardware.serialConsole) && has(self.hardware.pciDevices) == has(oldSelf.hardware.pciDevices) && (!has(self.hardware.pciDevices) || self.hardware.pciDevices == oldSelf.hardware.pciDevices))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.customProperties) == has(oldSelf.hardware.customProperties) && (!has(self.hardware.customProperties) || self.hardware.customProperties == oldSelf.hardware.customProperties))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.cpus) == has(oldSelf.hardware.cpus) && (!has(self.hardware.cpus) || self.hardware.cpus >= oldSelf.hardware.cpus) && has(self.hardware.memoryMiB) == has(oldSelf.hardware.memoryMiB) && (!has(self.hardware.memoryMiB) || self.hardware.memoryMiB >= oldSelf.hardware.memoryMiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.disks) || !has(oldSelf.disks) || (has(self.disks.boot) == has(oldSelf.disks.boot) && has(self.disks.template) == has(oldSelf.disks.template) && (!has(self.disks.template) || self.disks.template == oldSelf.disks.template) && has(self.disks.data) == has(oldSelf.disks.data) && (!has(self.disks.data) || self.disks.data == oldSelf.disks.data))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.disks) || !has(oldSelf.disks) || !has(self.disks.boot) || !has(oldSelf.disks.boot) || (has(self.disks.boot.storageDomain) == has(oldSelf.disks.boot.storageDomain) && (!has(self.disks.boot.storageDomain) || self.disks.boot.storageDomain == oldSelf.disks.boot.storageDomain) && has(self.disks.boot.format) == has(oldSelf.disks.boot.format) && (!has(self.disks.boot.format) || self.disks.boot.format == oldSelf.disks.boot.format) && has(self.disks.boot.provisioning) == has(oldSelf.disks.boot.provisioning) && (!has(self.disks.boot.provisioning) || self.disks.boot.provisioning == oldSelf.disks.boot.provisioning) && has(self.disks.boot.profile) == has(oldSelf.disks.boot.profile) && (!has(self.disks.boot.profile) || self.disks.boot.profile == oldSelf.disks.boot.profile) && has(self.disks.boot.sizeGiB) == has(oldSelf.disks.boot.sizeGiB) && (!has(self.disks.boot.sizeGiB) || self.disks.boot.sizeGiB >= oldSelf.disks.boot.sizeGiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID cannot change once it is set"
	Spec NovaZVirtMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state.
	// +optional
	Status infrav1.MachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (m *NovaZVirtMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions.
func (m *NovaZVirtMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's machine has; writing to
// them writes to the object.
func (m *NovaZVirtMachine) Common() (*infrav1.MachineSpec, *infrav1.MachineStatus) {
	return &m.Spec.MachineSpec, &m.Status
}

// Addressing returns how the machine's interfaces get their addresses in a failure
// domain.
func (m *NovaZVirtMachine) Addressing(domain string) []*infrav1.InterfaceAddressing {
	interfaces := m.Spec.Network.GetInterfaces()
	all := make([]*infrav1.InterfaceAddressing, len(interfaces))
	for i := range interfaces {
		in := interfaces[i].In(domain)
		all[i] = &in.InterfaceAddressing
	}
	return all
}

// MostPools returns the largest number of pools of an interface in any failure domain.
func (m *NovaZVirtMachine) MostPools(nic int) int {
	n := &m.Spec.Network.GetInterfaces()[nic]
	most := len(n.AddressesFromPools)
	for i := range n.FailureDomains {
		most = max(most, len(n.FailureDomains[i].AddressesFromPools))
	}
	return most
}

// In returns the interface with its settings in a failure domain.
func (n *NovaZVirtInterface) In(domain string) NovaZVirtInterface {
	out := *n
	for i := range n.FailureDomains {
		if own := &n.FailureDomains[i]; own.Name == domain {
			out.InterfaceAddressing = n.With(own)
		}
	}
	return out
}

// GetInterfaces returns the network interfaces, or the default: one interface.
func (n *NovaZVirtNetwork) GetInterfaces() []NovaZVirtInterface {
	if len(n.Interfaces) == 0 {
		return []NovaZVirtInterface{{}}
	}
	return n.Interfaces
}

// +kubebuilder:object:root=true

// NovaZVirtMachineList is a list of NovaZVirtMachines.
type NovaZVirtMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaZVirtMachine `json:"items"`
}

// NovaZVirtMachineTemplateSpec holds the template.
type NovaZVirtMachineTemplateSpec struct {
	// template is the template of NovaZVirtMachines.
	// +required
	Template NovaZVirtMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaZVirtMachineTemplateResource holds metadata and spec of a NovaZVirtMachine.
type NovaZVirtMachineTemplateResource struct {
	// metadata holds labels and annotations for the machine. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the machine.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="providerID belongs to one machine and cannot be set in a template"
	// +kubebuilder:validation:XValidation:rule="!has(self.network) || self.network.interfaces.all(i, !has(i.addresses) && !has(i.macAddress))",message="addresses and macAddress belong to one machine and cannot be set in a template: use addressesFromPools"
	Spec NovaZVirtMachineSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtmachinetemplates,scope=Namespaced,categories=cluster-api,shortName=novazvmat
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Cluster')].name",description="Cluster that uses the template"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.spec.template.name",description="Template in the engine"
// +kubebuilder:printcolumn:name="InstanceType",type="string",JSONPath=".spec.template.spec.hardware.instanceType",description="Instance type",priority=10
// +kubebuilder:printcolumn:name="CPUs",type="string",JSONPath=".status.capacity.cpu",description="Virtual processors"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory"
// +kubebuilder:printcolumn:name="Disk",type="string",JSONPath=".status.capacity.ephemeral-storage",description="Boot disk",priority=10
// +kubebuilder:printcolumn:name="CapacityKnown",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].status",description="Whether the capacity of machines is known"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].message",description="Message of CapacityKnown"

// NovaZVirtMachineTemplate is a template for machines.
type NovaZVirtMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable: create a template of another name
	// and refer to it to roll out a change.
	// +required
	Spec NovaZVirtMachineTemplateSpec `json:"spec,omitempty,omitzero"`

	// status is the capacity of machines of the template.
	// +optional
	Status infrav1.MachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (t *NovaZVirtMachineTemplate) GetConditions() []metav1.Condition { return t.Status.Conditions }

// SetConditions replaces the conditions.
func (t *NovaZVirtMachineTemplate) SetConditions(conditions []metav1.Condition) {
	t.Status.Conditions = conditions
}

// Capacity returns the status of the template; writing to it writes to the object.
func (t *NovaZVirtMachineTemplate) Capacity() *infrav1.MachineTemplateStatus { return &t.Status }

// +kubebuilder:object:root=true

// NovaZVirtMachineTemplateList is a list of NovaZVirtMachineTemplates.
type NovaZVirtMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaZVirtMachineTemplate `json:"items"`
}
