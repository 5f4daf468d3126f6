package v1beta2

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NovaZVirtMachineSpec is the VM behind a machine. Values in lower case are
// the engine's own words.
// +kubebuilder:validation:XValidation:rule="!has(self.highAvailability) || !has(self.placementPolicy) || !has(self.placementPolicy.affinity) || self.placementPolicy.affinity == 'migratable'",message="a highly available VM must be migratable: take placementPolicy.affinity out"
// +kubebuilder:validation:XValidation:rule="!has(self.highAvailability) || !has(self.hardware) || !has(self.hardware.pciDevices)",message="a VM with pciDevices runs on one host only: take highAvailability out"
type NovaZVirtMachineSpec struct {
	MachineSpec `json:",inline"`

	// template is the template the VM is made from.
	// +required
	Template NovaZVirtTemplateReference `json:"template,omitempty,omitzero"`

	// placement is where the VM goes. A field that is empty takes the
	// cluster's.
	// +optional
	Placement NovaZVirtPlacement `json:"placement,omitempty,omitzero"`

	// placementPolicy says whether the VM can move between hosts. Empty takes
	// the template's.
	// +optional
	PlacementPolicy NovaZVirtPlacementPolicy `json:"placementPolicy,omitempty,omitzero"`

	// hardware is what the VM gets. Empty takes the template's.
	// +optional
	Hardware NovaZVirtHardware `json:"hardware,omitempty,omitzero"`

	// storage is the VM's disks. Empty takes the template's as they are.
	// +optional
	Storage NovaZVirtStorage `json:"storage,omitempty,omitzero"`

	// network is what the VM is connected to.
	// +required
	Network NovaZVirtNetwork `json:"network,omitempty,omitzero"`

	// highAvailability has the engine restart the VM when its host fails.
	// Empty takes the template's.
	// +optional
	HighAvailability NovaZVirtHighAvailability `json:"highAvailability,omitempty,omitzero"`

	// affinity keeps the VM near to or apart from others. Empty keeps it
	// apart from those of the same control plane or MachineDeployment where
	// that is possible.
	// +optional
	Affinity NovaZVirtAffinity `json:"affinity,omitempty,omitzero"`

	// tags are the names of tags that the VM carries. They must exist. Empty
	// sets none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=50
	Tags []string `json:"tags,omitempty"`
}

// NovaZVirtTemplateReference names a template.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.id)",message="set exactly one of name and id"
// +kubebuilder:validation:XValidation:rule="!has(self.version) || has(self.name)",message="version belongs to name: an id names one version already"
type NovaZVirtTemplateReference struct {
	// name is the template's name. Empty when id is set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`

	// id is the template's ID. Empty when name is set.
	// +optional
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Format=uuid
	ID string `json:"id,omitempty"`

	// version is the number of the template's version. Empty takes the
	// latest at the time the VM is made.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Version int32 `json:"version,omitempty"`
}

// NovaZVirtPlacementPolicy says whether a VM can move between hosts. The hosts
// themselves are in placement.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtPlacementPolicy struct {
	// affinity is migratable, user_migratable (by hand only) or pinned. Empty
	// takes the template's.
	// +optional
	// +kubebuilder:validation:Enum=migratable;user_migratable;pinned
	Affinity string `json:"affinity,omitempty"`
}

// NovaZVirtHardware is the virtual hardware of a VM.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.instanceType) || !(has(self.memoryMiB) || has(self.guaranteedMemoryMiB) || has(self.maxMemoryMiB) || (has(self.cpu) && (has(self.cpu.sockets) || has(self.cpu.cores) || has(self.cpu.threads))))",message="an instanceType says processors and memory itself: set either it or cpu topology and memory"
// +kubebuilder:validation:XValidation:rule="!has(self.guaranteedMemoryMiB) || (has(self.memoryMiB) && self.guaranteedMemoryMiB <= self.memoryMiB)",message="guaranteedMemoryMiB needs memoryMiB and cannot be more than it"
// +kubebuilder:validation:XValidation:rule="!has(self.trustedPlatformModule) || !self.trustedPlatformModule || !has(self.biosType) || self.biosType in ['cluster_default', 'q35_ovmf', 'q35_secure_boot']",message="a trustedPlatformModule needs UEFI: set biosType to q35_ovmf or q35_secure_boot"
// +kubebuilder:validation:XValidation:rule="!has(self.maxMemoryMiB) || (has(self.memoryMiB) && self.maxMemoryMiB >= self.memoryMiB)",message="maxMemoryMiB needs memoryMiB and cannot be less than it"
type NovaZVirtHardware struct {
	// instanceType is the name or ID of an instance type that says processors
	// and memory. Empty means none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	InstanceType string `json:"instanceType,omitempty"`

	// cpu is the virtual processors. Empty takes the template's.
	// +optional
	CPU NovaZVirtCPU `json:"cpu,omitempty,omitzero"`

	// memoryMiB is the memory in MiB. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=16777216
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// guaranteedMemoryMiB is how much of it is always there. Empty means all.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=16777216
	GuaranteedMemoryMiB int64 `json:"guaranteedMemoryMiB,omitempty"`

	// maxMemoryMiB is how far memory can be hot-plugged. Empty leaves it to
	// the engine: four times the memory.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=16777216
	MaxMemoryMiB int64 `json:"maxMemoryMiB,omitempty"`

	// ballooning lets the host take unused memory back, which a kubelet does
	// not see. Empty means false.
	// +optional
	Ballooning *bool `json:"ballooning,omitempty"`

	// hugepagesKiB is the size of huge pages that back the memory. Empty
	// means none.
	// +optional
	// +kubebuilder:validation:Minimum=2048
	// +kubebuilder:validation:Enum=2048;1048576
	HugepagesKiB int32 `json:"hugepagesKiB,omitempty"`

	// vmType is what the engine optimizes the VM for. Empty takes the
	// template's.
	// +optional
	// +kubebuilder:validation:Enum=server;high_performance;desktop
	VMType string `json:"vmType,omitempty"`

	// osType is the operating system by the engine's name for it, such as
	// rhel_9x64 or debian_9. Ignition needs one that the engine knows to use
	// it. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	OSType string `json:"osType,omitempty"`

	// biosType is the chipset and firmware. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Enum=cluster_default;i440fx_sea_bios;q35_sea_bios;q35_ovmf;q35_secure_boot
	BIOSType string `json:"biosType,omitempty"`

	// trustedPlatformModule gives the VM a virtual TPM 2.0. It needs a biosType
	// of UEFI: q35_ovmf or q35_secure_boot. If not set, the template's is used.
	// +optional
	TrustedPlatformModule *bool `json:"trustedPlatformModule,omitempty"`

	// headless takes the graphical consoles away. Empty means false.
	// +optional
	Headless *bool `json:"headless,omitempty"`

	// serialConsole adds a serial console. Empty takes the template's.
	// +optional
	SerialConsole *bool `json:"serialConsole,omitempty"`

	// pciDevices are devices of a host that are passed through. The VM is pinned
	// to a host that has them free: one of placement.hosts, or any of the cluster.
	// The account needs an administrative role. If not set, no device is passed
	// through.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	PCIDevices []NovaZVirtPCIDevice `json:"pciDevices,omitempty"`

	// customProperties are the engine's custom properties; hugepages has a
	// field of its own. Empty sets none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	CustomProperties []NovaZVirtCustomProperty `json:"customProperties,omitempty"`
}

// NovaZVirtPCIDevice is a kind of device of hosts.
type NovaZVirtPCIDevice struct {
	// vendorID is the vendor's number. NVIDIA's is 4318.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	VendorID int32 `json:"vendorID,omitempty"`

	// deviceID is the number that the vendor gave the device.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	DeviceID int32 `json:"deviceID,omitempty"`
}

// NovaZVirtCPU is the virtual processors: their number is sockets times cores
// times threads, each one when it is empty.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtCPU struct {
	// sockets is the number of sockets. Empty means one, if cores or threads
	// are set, and the template's otherwise.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Sockets int32 `json:"sockets,omitempty"`

	// cores is the number of cores of a socket. Empty is as for sockets.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	Cores int32 `json:"cores,omitempty"`

	// threads is the number of threads of a core. Empty is as for sockets.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Threads int32 `json:"threads,omitempty"`

	// type is the processor that the VM sees, by the engine's name for it,
	// such as Cascadelake-Server. Empty takes the cluster's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Type string `json:"type,omitempty"`

	// mode passes the host's processor on: host_passthrough shows it as it
	// is, host_model what is like it. Empty shows type.
	// +optional
	// +kubebuilder:validation:Enum=custom;host_model;host_passthrough
	Mode string `json:"mode,omitempty"`

	// pinningPolicy ties virtual processors to those of the host;
	// resize_and_pin_numa gives the VM the host's NUMA topology as well. It
	// needs an engine 4.5. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Enum=none;resize_and_pin_numa;dedicated;isolate_threads
	PinningPolicy string `json:"pinningPolicy,omitempty"`

	// profile is the name or ID of a CPU profile of the engine's cluster, which
	// limits how much processor time the VM gets. If not set, the engine takes the
	// cluster's first profile that the user may use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Profile string `json:"profile,omitempty"`
}

// NovaZVirtCustomProperty is a custom property of a VM.
type NovaZVirtCustomProperty struct {
	// name is the name of the property.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'hugepages'",message="hugepages has a field of its own: hugepagesKiB"
	Name string `json:"name,omitempty"`

	// value is its value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// NovaZVirtStorageAllocation is how a VM's disks relate to its template's.
// +kubebuilder:validation:Enum=Thin;Clone
type NovaZVirtStorageAllocation string

// Storage allocations.
const (
	// ZVirtThin disks hold only what differs from the template, which cannot
	// be removed while they exist.
	ZVirtThin NovaZVirtStorageAllocation = "Thin"
	// ZVirtClone disks are full copies.
	ZVirtClone NovaZVirtStorageAllocation = "Clone"
)

// NovaZVirtStorage is the disks of a VM.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="(has(self.allocation) && self.allocation == 'Clone') || !has(self.bootDisk) || !((has(self.bootDisk.format) && self.bootDisk.format == 'raw') || (has(self.bootDisk.sparse) && !self.bootDisk.sparse))",message="a thin disk is sparse and cow: set allocation to Clone, or take format and sparse of bootDisk out"
// +kubebuilder:validation:XValidation:rule="(has(self.allocation) && self.allocation == 'Clone') || !has(self.templateDisks) || !self.templateDisks.exists(d, (has(d.format) && d.format == 'raw') || (has(d.sparse) && !d.sparse))",message="a thin disk is sparse and cow: set allocation to Clone, or take format and sparse of templateDisks out"
type NovaZVirtStorage struct {
	// allocation is Thin or Clone. Empty means Thin.
	// +optional
	Allocation NovaZVirtStorageAllocation `json:"allocation,omitempty"`

	// bootDisk is what becomes of the template's boot disk. Empty takes it as
	// it is.
	// +optional
	BootDisk NovaZVirtTemplateDisk `json:"bootDisk,omitempty,omitzero"`

	// templateDisks are what becomes of the template's other disks, by name.
	// Those not listed are taken as they are.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=23
	TemplateDisks []NovaZVirtNamedDisk `json:"templateDisks,omitempty"`

	// dataDisks are disks beside the template's. Empty adds none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=23
	// +kubebuilder:validation:XValidation:rule="self.filter(d, has(d.bootable) && d.bootable).size() <= 1",message="a VM boots from one disk: only one can be bootable"
	DataDisks []NovaZVirtDataDisk `json:"dataDisks,omitempty"`
}

// GetAllocation returns how disks relate to the template's.
func (s *NovaZVirtStorage) GetAllocation() NovaZVirtStorageAllocation {
	return cmp.Or(s.Allocation, ZVirtThin)
}

// NovaZVirtTemplateDisk is what becomes of a template's disk. Format and sparse
// can change with a Clone only: a thin disk is sparse and cow.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtTemplateDisk struct {
	// sizeGiB is the size in GiB that the disk is grown to; it never shrinks.
	// Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=524288
	SizeGiB int64 `json:"sizeGiB,omitempty"`

	// storageDomain is the name or ID of the storage domain. A thin disk can
	// only be where the template's is. Empty takes the placement's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StorageDomain string `json:"storageDomain,omitempty"`

	// format is raw or cow. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Enum=raw;cow
	Format string `json:"format,omitempty"`

	// sparse allocates space as it is written. Empty takes the template's.
	// +optional
	Sparse *bool `json:"sparse,omitempty"`

	// profile is the name or ID of a disk profile of the storage domain, which
	// limits throughput and IOPS. If not set, the engine takes the storage
	// domain's first profile that the user may use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Profile string `json:"profile,omitempty"`
}

// NovaZVirtNamedDisk is what becomes of a template's disk of a name.
type NovaZVirtNamedDisk struct {
	// name is the name (alias) of the template's disk.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`

	NovaZVirtTemplateDisk `json:",inline"`
}

// NovaZVirtDataDisk is a disk beside the template's. It goes with the VM.
// +kubebuilder:validation:XValidation:rule="!has(self.format) || self.format != 'cow' || !has(self.sparse) || self.sparse",message="a cow disk is sparse: take sparse out or choose raw"
type NovaZVirtDataDisk struct {
	// name tells the disk from the VM's others; the engine shows it between
	// the machine's name and a few digits that mark it as the machine's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// sizeGiB is the size in GiB.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=524288
	SizeGiB int64 `json:"sizeGiB,omitempty"`

	// storageDomain is the name or ID of the storage domain. Empty takes the
	// placement's, or the boot disk's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StorageDomain string `json:"storageDomain,omitempty"`

	// format is raw or cow. Empty means cow, or raw if sparse is false.
	// +optional
	// +kubebuilder:validation:Enum=raw;cow
	Format string `json:"format,omitempty"`

	// sparse allocates space as it is written. Empty means true.
	// +optional
	Sparse *bool `json:"sparse,omitempty"`

	// profile is the name or ID of a disk profile of the storage domain, which
	// limits throughput and IOPS. If not set, the engine takes the storage
	// domain's first profile that the user may use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Profile string `json:"profile,omitempty"`

	// interface is how the VM sees the disk. Empty means virtio_scsi.
	// +optional
	// +kubebuilder:validation:Enum=virtio_scsi;virtio;sata
	Interface string `json:"interface,omitempty"`

	// bootable has the VM boot from this disk. It is for templates without a
	// boot disk of their own. Empty means false.
	// +optional
	Bootable *bool `json:"bootable,omitempty"`
}

// NovaZVirtNetwork is what a VM is connected to.
type NovaZVirtNetwork struct {
	// interfaces are the VM's network interfaces in order; they replace the
	// template's.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Interfaces []NovaZVirtInterface `json:"interfaces,omitempty"`
}

// NovaZVirtInterface is one network interface. What the engine can tell a
// guest of it is DHCP, or an address and a gateway of each family, and the
// name servers of the first interface that has some.
// +kubebuilder:validation:XValidation:rule="!has(self.mtu)",message="the engine sets an interface's MTU by its network: change it there"
// +kubebuilder:validation:XValidation:rule="!has(self.routes) && !(has(self.failureDomains) && self.failureDomains.exists(d, has(d.routes)))",message="the engine cannot tell a guest routes: set them in the bootstrap configuration"
// +kubebuilder:validation:XValidation:rule="!has(self.addresses) || (self.addresses.filter(a, isCIDR(a) && cidr(a).ip().family() == 4).size() <= 1 && self.addresses.filter(a, isCIDR(a) && cidr(a).ip().family() == 6).size() <= 1)",message="the engine can give an interface one address of each family"
type NovaZVirtInterface struct {
	// vnicProfile is the vNIC profile as network/profile, or its ID. Empty
	// takes the cluster's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	VNICProfile string `json:"vnicProfile,omitempty"`

	// guestName is what the guest calls the interface, such as enp1s0: the
	// engine tells it its addresses by this name. Empty means eth and the
	// interface's number from zero.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_.-]*$`
	GuestName string `json:"guestName,omitempty"`

	// type is the kind of the network card. pci_passthrough needs a vNIC profile
	// with passthrough. If not set, virtio is used.
	// +optional
	// +kubebuilder:validation:Enum=virtio;e1000;e1000e;rtl8139;pci_passthrough
	Type string `json:"type,omitempty"`

	InterfaceAddressing `json:",inline"`
}

// NovaZVirtHighAvailability has the engine restart a VM when its host fails.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtHighAvailability struct {
	// priority is which VMs go first, from 1 to 100. Empty means 50.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Priority int32 `json:"priority,omitempty"`

	// leaseStorageDomain is the name or ID of the storage domain that keeps a
	// lease, so that the VM never runs twice when its host cannot be reached.
	// Empty keeps none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	LeaseStorageDomain string `json:"leaseStorageDomain,omitempty"`
}

// DefaultZVirtPriority is the priority of a highly available VM that says none.
const DefaultZVirtPriority = 50

// GetPriority returns which VMs go first.
func (h *NovaZVirtHighAvailability) GetPriority() int32 {
	return cmp.Or(h.Priority, DefaultZVirtPriority)
}

// NovaZVirtAntiAffinity is how strictly machines of a group are kept apart.
// +kubebuilder:validation:Enum=Soft;Hard;None
type NovaZVirtAntiAffinity string

// Strictness of anti-affinity.
const (
	// ZVirtSoftAntiAffinity keeps machines on different hosts where possible.
	ZVirtSoftAntiAffinity NovaZVirtAntiAffinity = "Soft"
	// ZVirtHardAntiAffinity does not start a machine that finds no host of its own.
	ZVirtHardAntiAffinity NovaZVirtAntiAffinity = "Hard"
	// ZVirtNoAntiAffinity does not keep machines apart.
	ZVirtNoAntiAffinity NovaZVirtAntiAffinity = "None"
)

// NovaZVirtAffinity keeps a VM near to or apart from others.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtAffinity struct {
	// antiAffinity is how strictly the VM is kept apart from those of the
	// same control plane or MachineDeployment: Soft, Hard or None. Empty
	// means Soft.
	// +optional
	AntiAffinity NovaZVirtAntiAffinity `json:"antiAffinity,omitempty"`

	// groups are the names of further affinity groups of the engine's cluster
	// that the VM joins. They must exist. Empty joins none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	Groups []string `json:"groups,omitempty"`

	// labels are the names of affinity labels that the VM carries. They must
	// exist. Empty sets none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=50
	Labels []string `json:"labels,omitempty"`
}

// GetAntiAffinity returns how strictly the VM is kept apart.
func (a *NovaZVirtAffinity) GetAntiAffinity() NovaZVirtAntiAffinity {
	return cmp.Or(a.AntiAffinity, ZVirtSoftAntiAffinity)
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtmachines,scope=Namespaced,categories=cluster-api,shortName=novazvma
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Machine')].name",description="Machine that owns it",priority=10
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the VM is up"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='VirtualMachineProvisioned')].reason",description="How far the VM is"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address",description="Internal addresses"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.host",description="Host the VM runs on"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.name",description="Template of the engine",priority=10
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaZVirtMachine is a machine that is a VM on a zVirt or oVirt engine.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name becomes the node's name and can have at most 63 characters"
type NovaZVirtMachine struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Only providerID and powerOff can change.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template && self.network == oldSelf.network && has(self.naming) == has(oldSelf.naming) && (!has(self.naming) || self.naming == oldSelf.naming) && has(self.placement) == has(oldSelf.placement) && (!has(self.placement) || self.placement == oldSelf.placement) && has(self.placementPolicy) == has(oldSelf.placementPolicy) && (!has(self.placementPolicy) || self.placementPolicy == oldSelf.placementPolicy) && has(self.hardware) == has(oldSelf.hardware) && (!has(self.hardware) || self.hardware == oldSelf.hardware) && has(self.storage) == has(oldSelf.storage) && (!has(self.storage) || self.storage == oldSelf.storage) && has(self.highAvailability) == has(oldSelf.highAvailability) && (!has(self.highAvailability) || self.highAvailability == oldSelf.highAvailability) && has(self.affinity) == has(oldSelf.affinity) && (!has(self.affinity) || self.affinity == oldSelf.affinity) && has(self.tags) == has(oldSelf.tags) && (!has(self.tags) || self.tags == oldSelf.tags)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID cannot change once it is set"
	Spec NovaZVirtMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Empty until the first reconcile.
	// +optional
	Status MachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (m *NovaZVirtMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions.
func (m *NovaZVirtMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's machine has; writing to
// them writes to the object.
func (m *NovaZVirtMachine) Common() (*MachineSpec, *MachineStatus) {
	return &m.Spec.MachineSpec, &m.Status
}

// Addressing returns how the machine's interfaces get their addresses.
func (m *NovaZVirtMachine) Addressing() []*InterfaceAddressing {
	all := make([]*InterfaceAddressing, len(m.Spec.Network.Interfaces))
	for i := range m.Spec.Network.Interfaces {
		all[i] = &m.Spec.Network.Interfaces[i].InterfaceAddressing
	}
	return all
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
	// template is what a NovaZVirtMachine is made from.
	// +required
	Template NovaZVirtMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaZVirtMachineTemplateResource is the machine to make.
type NovaZVirtMachineTemplateResource struct {
	// metadata holds labels and annotations for the machine. Empty adds none.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the machine's spec.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="providerID belongs to one machine and cannot stand in a template"
	// +kubebuilder:validation:XValidation:rule="self.network.interfaces.all(i, !has(i.addresses) && !has(i.macAddress))",message="addresses and macAddress belong to one machine and cannot stand in a template: take addressesFromPools"
	Spec NovaZVirtMachineSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtmachinetemplates,scope=Namespaced,categories=cluster-api,shortName=novazvmat
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Cluster')].name",description="Cluster whose machines are made from it"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.spec.template.name",description="Template of the engine"
// +kubebuilder:printcolumn:name="InstanceType",type="string",JSONPath=".spec.template.spec.hardware.instanceType",description="Instance type",priority=10
// +kubebuilder:printcolumn:name="CPUs",type="string",JSONPath=".status.capacity.cpu",description="Virtual processors"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory"
// +kubebuilder:printcolumn:name="Disk",type="string",JSONPath=".status.capacity.ephemeral-storage",description="Boot disk",priority=10
// +kubebuilder:printcolumn:name="CapacityKnown",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].status",description="Whether it is known what machines will have"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].message",description="Why that is not known"

// NovaZVirtMachineTemplate is a template for machines.
type NovaZVirtMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable: name a new template to roll
	// a change out.
	// +required
	Spec NovaZVirtMachineTemplateSpec `json:"spec,omitempty,omitzero"`

	// status is what machines made from the template will have. Empty until
	// it is known.
	// +optional
	Status MachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (t *NovaZVirtMachineTemplate) GetConditions() []metav1.Condition { return t.Status.Conditions }

// SetConditions replaces the conditions.
func (t *NovaZVirtMachineTemplate) SetConditions(conditions []metav1.Condition) {
	t.Status.Conditions = conditions
}

// Capacity returns what machines made from the template will have; writing to
// it writes to the object.
func (t *NovaZVirtMachineTemplate) Capacity() *MachineTemplateStatus { return &t.Status }

// +kubebuilder:object:root=true

// NovaZVirtMachineTemplateList is a list of NovaZVirtMachineTemplates.
type NovaZVirtMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaZVirtMachineTemplate `json:"items"`
}
