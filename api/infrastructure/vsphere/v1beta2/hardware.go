package v1beta2

import infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"

// NovaVSphereHardware is the virtual hardware of a VM.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.cpuTopology) || !has(self.cpuTopology.coresPerSocket) || (has(self.cpus) && self.cpus % self.cpuTopology.coresPerSocket == 0)",message="cpus must be set and be a multiple of cpuTopology.coresPerSocket"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuLimitMHz) || !has(self.cpuReservationMHz) || self.cpuReservationMHz <= self.cpuLimitMHz",message="cpuReservationMHz cannot be more than cpuLimitMHz"
// +kubebuilder:validation:XValidation:rule="!has(self.memoryLimitMiB) || !has(self.memoryReservationMiB) || self.memoryReservationMiB <= self.memoryLimitMiB",message="memoryReservationMiB cannot be more than memoryLimitMiB"
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || (has(self.firmware) && self.firmware == 'EFI')",message="secureBoot needs the firmware EFI"
// +kubebuilder:validation:XValidation:rule="!has(self.trustedPlatformModule) || !self.trustedPlatformModule || (has(self.firmware) && self.firmware == 'EFI')",message="trustedPlatformModule needs the firmware EFI"
type NovaVSphereHardware struct {
	// cpus is the number of virtual CPUs. If not set, the VM has as many as the
	// template.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CPUs int32 `json:"cpus,omitempty"`

	// cpuTopology defines how the virtual CPUs are divided into sockets. If not set,
	// vCenter chooses it.
	// +optional
	CPUTopology infrav1.CPUTopology `json:"cpuTopology,omitempty,omitzero"`

	// memoryMiB is the memory in MiB, a multiple of 4. If not set, the VM has as much
	// as the template.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=25165824
	// +kubebuilder:validation:MultipleOf=4
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// cpuHotAdd lets vCenter add CPUs while the VM runs. The guest does not see the NUMA
	// nodes of the host then, unless vCenter is configured otherwise. If not set, the
	// setting of the template is used.
	// +optional
	CPUHotAdd *bool `json:"cpuHotAdd,omitempty"`

	// memoryHotAdd lets vCenter add memory while the VM runs. If not set, the setting
	// of the template is used.
	// +optional
	MemoryHotAdd *bool `json:"memoryHotAdd,omitempty"`

	// memoryReservationMiB is the memory in MiB that is reserved for the VM on its
	// host. If not set, the reservation of the template is used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryReservationMiB *int64 `json:"memoryReservationMiB,omitempty"`

	// memoryLimitMiB is the most host memory in MiB that the VM gets. If not set, the
	// limit of the template is used.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MemoryLimitMiB int64 `json:"memoryLimitMiB,omitempty"`

	// memoryShares is the priority of the VM where VMs compete for memory. If not
	// set, the shares of the template are used.
	// +optional
	MemoryShares NovaVSphereShares `json:"memoryShares,omitempty,omitzero"`

	// cpuReservationMHz is the CPU frequency in MHz that is reserved for the VM on
	// its host. If not set, the reservation of the template is used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CPUReservationMHz *int64 `json:"cpuReservationMHz,omitempty"`

	// cpuLimitMHz is the most CPU frequency in MHz that the VM gets. If not set, the
	// limit of the template is used.
	// +optional
	// +kubebuilder:validation:Minimum=1
	CPULimitMHz int64 `json:"cpuLimitMHz,omitempty"`

	// cpuShares is the priority of the VM where VMs compete for CPUs. If not set, the
	// shares of the template are used.
	// +optional
	CPUShares NovaVSphereShares `json:"cpuShares,omitempty,omitzero"`

	// version is the version of the virtual hardware, such as vmx-19. A clone of an
	// older template is upgraded before its first start; a newer version is not
	// changed. If not set, the VM has the version of the template.
	// +optional
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^vmx-[1-9][0-9]?$`
	Version string `json:"version,omitempty"`

	// nestedVirtualization lets the VM run VMs. If not set, the setting of the
	// template is used.
	// +optional
	NestedVirtualization *bool `json:"nestedVirtualization,omitempty"`

	// firmware is the firmware that the VM boots with: BIOS or EFI. The boot disk of
	// the template must support it. If not set, the firmware of the template is used.
	// +optional
	Firmware infrav1.Firmware `json:"firmware,omitempty"`

	// secureBoot starts signed boot loaders only. It needs the firmware EFI. If not
	// set, the setting of the template is used.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`

	// trustedPlatformModule gives the VM its own virtual TPM 2.0. It needs the
	// firmware EFI and a key provider in the vCenter. If not set, the setting of the
	// template is used.
	// +optional
	TrustedPlatformModule *bool `json:"trustedPlatformModule,omitempty"`

	// pciDevices are devices of the host that are passed through. All memory is
	// reserved then. If not set, none are passed through.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	PCIDevices []NovaVSpherePCIDevice `json:"pciDevices,omitempty"`

	// vgpuProfiles are the profiles of virtual GPUs, such as grid_t4-16q, one for
	// each GPU. All memory is reserved then. If not set, the VM has none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	VGPUProfiles []string `json:"vgpuProfiles,omitempty"`

	// encryption is how the VM is encrypted. If not set, the settings of the template
	// are used.
	// +optional
	Encryption NovaVSphereEncryption `json:"encryption,omitempty,omitzero"`

	// extraConfig are additional settings of the VM. Names that belong to the
	// provider are rejected: guestinfo.*, nova.* and disk.EnableUUID. If not set,
	// none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ExtraConfig []NovaVSphereExtraConfig `json:"extraConfig,omitempty"`
}

// NovaVSphereSharesLevel is a predefined number of shares.
// +kubebuilder:validation:Enum=Low;Normal;High
type NovaVSphereSharesLevel string

// Values of NovaVSphereSharesLevel.
const (
	SharesLow    NovaVSphereSharesLevel = "Low"
	SharesNormal NovaVSphereSharesLevel = "Normal"
	SharesHigh   NovaVSphereSharesLevel = "High"
)

// NovaVSphereShares is the priority of a VM where VMs compete for a resource.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type NovaVSphereShares struct {
	// level is Low, Normal or High. Mutually exclusive with value.
	// +optional
	Level NovaVSphereSharesLevel `json:"level,omitempty"`

	// value is the number of shares. Mutually exclusive with level.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4000000
	Value int32 `json:"value,omitempty"`
}

// NovaVSpherePCIDevice is a type of device of hosts. vCenter chooses a host with a
// free device.
type NovaVSpherePCIDevice struct {
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

	// customLabel is the label that the device must have in vCenter. If not set, any
	// device is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	CustomLabel string `json:"customLabel,omitempty"`
}

// NovaVSphereEncryptionMode controls when traffic is encrypted.
// +kubebuilder:validation:Enum=Disabled;Opportunistic;Required
type NovaVSphereEncryptionMode string

// Values of NovaVSphereEncryptionMode.
const (
	EncryptionDisabled      NovaVSphereEncryptionMode = "Disabled"
	EncryptionOpportunistic NovaVSphereEncryptionMode = "Opportunistic"
	EncryptionRequired      NovaVSphereEncryptionMode = "Required"
)

// NovaVSphereEncryption is how a VM is encrypted.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.keyID) || has(self.keyProvider)",message="keyID needs keyProvider: set the ID of the key provider that has the key"
type NovaVSphereEncryption struct {
	// migration controls whether a migration to another host is encrypted: Disabled,
	// Opportunistic or Required. If not set, the setting of the template is used.
	// +optional
	Migration NovaVSphereEncryptionMode `json:"migration,omitempty"`

	// faultTolerance controls whether traffic to a secondary VM is encrypted: Disabled,
	// Opportunistic or Required. If not set, the setting of the template is used.
	// +optional
	FaultTolerance NovaVSphereEncryptionMode `json:"faultTolerance,omitempty"`

	// keyID is an existing key that the VM's settings are encrypted with. Disks
	// follow their storage policy. If not set, keyProvider generates a key.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	KeyID string `json:"keyID,omitempty"`

	// keyProvider is the ID of the key provider that has the key. If keyID is not
	// set, the key provider generates a key for each VM, as the Native Key Provider
	// does. If not set, the VM is encrypted only if its template or a storage policy
	// is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	KeyProvider string `json:"keyProvider,omitempty"`
}

// NovaVSphereExtraConfig is a setting of a VM.
// +kubebuilder:validation:XValidation:rule="!self.name.lowerAscii().startsWith('guestinfo.') && !self.name.lowerAscii().startsWith('nova.') && self.name.lowerAscii() != 'disk.enableuuid'",message="the names guestinfo.*, nova.* and disk.EnableUUID belong to the provider"
type NovaVSphereExtraConfig struct {
	// name is the key of the setting, such as pciPassthru.use64bitMMIO.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// value is the value of the setting. If not set, a setting of the template is
	// removed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// NovaVSphereDisks are the disks of a VM.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereDisks struct {
	// boot is the first disk of the template. If not set, it is not changed.
	// +optional
	Boot NovaVSphereBootDisk `json:"boot,omitempty,omitzero"`

	// template are the other disks of the template. Disks that are not in the list
	// are not changed. If not set, no such disk is changed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=60
	Template []NovaVSphereTemplateDisk `json:"template,omitempty"`

	// data are additional empty disks. They are deleted with the VM. If not set,
	// there are none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=60
	Data []NovaVSphereDataDisk `json:"data,omitempty"`
}

// NovaVSphereBootDisk is the first disk of the template.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereBootDisk struct {
	// sizeGiB is the size that the disk is grown to. It cannot be less than the size
	// in the template. If not set, the size is not changed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	SizeGiB int64 `json:"sizeGiB,omitempty"`
}

// NovaVSphereTemplateDisk is a disk of the template other than the first.
type NovaVSphereTemplateDisk struct {
	// name is the label of the disk in vCenter, such as Hard disk 2.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`

	// sizeGiB is the size that the disk is grown to. It cannot be less than the size
	// in the template.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	SizeGiB int64 `json:"sizeGiB,omitempty"`
}

// NovaVSphereProvisioning controls when the space of a disk is allocated.
// +kubebuilder:validation:Enum=Thin;Thick;EagerZeroed
type NovaVSphereProvisioning string

// Values of NovaVSphereProvisioning.
const (
	// ProvisioningThin allocates space when it is written.
	ProvisioningThin NovaVSphereProvisioning = "Thin"
	// ProvisioningThick allocates all space at once and zeroes it when it is used.
	ProvisioningThick NovaVSphereProvisioning = "Thick"
	// ProvisioningEagerZeroed allocates all space and zeroes it at once.
	ProvisioningEagerZeroed NovaVSphereProvisioning = "EagerZeroed"
)

// NovaVSphereDataDisk is an empty disk.
type NovaVSphereDataDisk struct {
	// name is the name of the disk in this list.
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

	// provisioning is Thin, Thick or EagerZeroed. If not set, the storage policy or
	// the datastore decides.
	// +optional
	Provisioning NovaVSphereProvisioning `json:"provisioning,omitempty"`

	// datastore is the name or inventory path of the datastore of the disk. If not
	// set, the datastore of the VM is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Datastore string `json:"datastore,omitempty"`

	// storagePolicy is the name of the storage policy of the disk. If not set, the
	// storage policy of the VM is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StoragePolicy string `json:"storagePolicy,omitempty"`

	// controller is the controller that the disk is connected to. If not set, the
	// controller of the boot disk is used, and more of the same type if it is full.
	// +optional
	Controller NovaVSphereController `json:"controller,omitempty,omitzero"`
}

// NovaVSphereControllerType is a type of disk controller.
// +kubebuilder:validation:Enum=ParaVirtual;LSILogic;LSILogicSAS;BusLogic;SATA;NVMe
type NovaVSphereControllerType string

// Values of NovaVSphereControllerType.
const (
	ControllerParaVirtual NovaVSphereControllerType = "ParaVirtual"
	ControllerLSILogic    NovaVSphereControllerType = "LSILogic"
	ControllerLSILogicSAS NovaVSphereControllerType = "LSILogicSAS"
	ControllerBusLogic    NovaVSphereControllerType = "BusLogic"
	ControllerSATA        NovaVSphereControllerType = "SATA"
	ControllerNVMe        NovaVSphereControllerType = "NVMe"
)

// NovaVSphereController is the controller of a disk. A controller that the template
// does not have is added.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.unit) || has(self.bus)",message="unit needs bus"
type NovaVSphereController struct {
	// type is the type of controller. If not set, it is the type of the boot disk's
	// controller.
	// +optional
	Type NovaVSphereControllerType `json:"type,omitempty"`

	// bus is the bus number of the controller. If not set, the first controller with
	// a free unit is used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3
	Bus *int32 `json:"bus,omitempty"`

	// unit is the unit number of the disk on the controller. If not set, the first
	// free unit is used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=63
	Unit *int32 `json:"unit,omitempty"`
}
