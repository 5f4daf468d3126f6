package v1beta2

// NovaVSphereFirmware is what a VM boots with.
// +kubebuilder:validation:Enum=BIOS;EFI
type NovaVSphereFirmware string

// Values of NovaVSphereFirmware.
const (
	// FirmwareBIOS boots as old machines do.
	FirmwareBIOS NovaVSphereFirmware = "BIOS"
	// FirmwareEFI boots as new machines do.
	FirmwareEFI NovaVSphereFirmware = "EFI"
)

// NovaVSphereHardware is the virtual hardware of a VM.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.coresPerSocket) || (has(self.cpus) && self.cpus % self.coresPerSocket == 0)",message="cpus must be set and be a multiple of coresPerSocket"
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || (has(self.firmware) && self.firmware == 'EFI')",message="secureBoot needs the firmware EFI"
// +kubebuilder:validation:XValidation:rule="!has(self.trustedPlatformModule) || !self.trustedPlatformModule || (has(self.firmware) && self.firmware == 'EFI')",message="trustedPlatformModule needs the firmware EFI"
type NovaVSphereHardware struct {
	// cpus is the number of virtual processors. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CPUs int32 `json:"cpus,omitempty"`

	// coresPerSocket is how many of them share a socket. Empty leaves it to
	// vCenter.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CoresPerSocket int32 `json:"coresPerSocket,omitempty"`

	// memoryMiB is the memory in MiB, a multiple of 4. Empty takes the
	// template's.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=25165824
	// +kubebuilder:validation:MultipleOf=4
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// cpuAllocation is the VM's share of the hosts' processors, in MHz. Empty
	// takes the template's.
	// +optional
	CPUAllocation NovaVSphereAllocation `json:"cpuAllocation,omitempty,omitzero"`

	// memoryAllocation is the VM's share of the hosts' memory, in MiB. Empty
	// takes the template's.
	// +optional
	MemoryAllocation NovaVSphereAllocation `json:"memoryAllocation,omitempty,omitzero"`

	// version is the version of the virtual hardware, such as vmx-19. A
	// template that is older is upgraded before its clone's first start; one
	// that is newer stays as it is. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^vmx-[1-9][0-9]?$`
	Version string `json:"version,omitempty"`

	// nestedVirtualization lets the VM run VMs of its own. Empty takes the
	// template's.
	// +optional
	NestedVirtualization *bool `json:"nestedVirtualization,omitempty"`

	// firmware is what the VM boots with, BIOS or EFI. The template's disk must
	// be made for it. Empty takes the template's.
	// +optional
	Firmware NovaVSphereFirmware `json:"firmware,omitempty"`

	// secureBoot starts signed boot loaders only. It needs the firmware EFI.
	// Empty takes the template's.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`

	// trustedPlatformModule gives the VM a virtual TPM 2.0 of its own. It needs
	// the firmware EFI and a key provider in vCenter. Empty takes the
	// template's.
	// +optional
	TrustedPlatformModule *bool `json:"trustedPlatformModule,omitempty"`

	// pciDevices are devices of the host that are passed through. All memory
	// is reserved then. Empty passes none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	PCIDevices []NovaVSpherePCIDevice `json:"pciDevices,omitempty"`

	// vgpuProfiles are the profiles of shared graphics processors, such as
	// grid_t4-16q, one for each. All memory is reserved then. Empty gives none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	VGPUProfiles []string `json:"vgpuProfiles,omitempty"`

	// encryption is how the VM is encrypted. Empty takes the template's.
	// +optional
	Encryption NovaVSphereEncryption `json:"encryption,omitempty,omitzero"`

	// extraConfig are further settings of the VM. Keys that belong to the
	// provider are refused: guestinfo.*, nova.* and disk.EnableUUID. Empty adds
	// none.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ExtraConfig []NovaVSphereExtraConfig `json:"extraConfig,omitempty"`
}

// NovaVSphereSharesLevel is a priority in words.
// +kubebuilder:validation:Enum=Low;Normal;High
type NovaVSphereSharesLevel string

// Values of NovaVSphereSharesLevel.
const (
	SharesLow    NovaVSphereSharesLevel = "Low"
	SharesNormal NovaVSphereSharesLevel = "Normal"
	SharesHigh   NovaVSphereSharesLevel = "High"
)

// NovaVSphereAllocation is a VM's share of a resource, in the resource's unit.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.limit) || !has(self.reservation) || self.reservation <= self.limit",message="reservation cannot be more than limit"
// +kubebuilder:validation:XValidation:rule="!has(self.shares) || !has(self.sharesLevel)",message="only one of shares and sharesLevel can be set"
type NovaVSphereAllocation struct {
	// reservation is what the VM is sure to get. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reservation *int64 `json:"reservation,omitempty"`

	// limit is the most the VM gets. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Limit int64 `json:"limit,omitempty"`

	// sharesLevel is the VM's priority where VMs compete: Low, Normal or High.
	// Empty takes the template's.
	// +optional
	SharesLevel NovaVSphereSharesLevel `json:"sharesLevel,omitempty"`

	// shares is the VM's priority as a number. Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4000000
	Shares int32 `json:"shares,omitempty"`
}

// NovaVSpherePCIDevice is a kind of device of hosts. vCenter picks a host that
// has one to spare.
type NovaVSpherePCIDevice struct {
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

	// customLabel is the label that the device must have in vCenter. Empty
	// takes any.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	CustomLabel string `json:"customLabel,omitempty"`
}

// NovaVSphereEncryptionMode says when traffic is encrypted.
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
	// migration is whether the VM is encrypted on its way to another host.
	// Empty takes the template's.
	// +optional
	Migration NovaVSphereEncryptionMode `json:"migration,omitempty"`

	// faultTolerance is whether the traffic to a secondary VM is encrypted.
	// Empty takes the template's.
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
	// does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	KeyProvider string `json:"keyProvider,omitempty"`
}

// NovaVSphereExtraConfig is a setting of a VM.
// +kubebuilder:validation:XValidation:rule="!self.key.lowerAscii().startsWith('guestinfo.') && !self.key.lowerAscii().startsWith('nova.') && self.key.lowerAscii() != 'disk.enableuuid'",message="the keys guestinfo.*, nova.* and disk.EnableUUID belong to the provider"
type NovaVSphereExtraConfig struct {
	// key is the key of the setting, such as pciPassthru.use64bitMMIO.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Key string `json:"key,omitempty"`

	// value is the value of the setting. Empty takes the setting away that the
	// template has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// NovaVSphereDisks are the disks of a VM.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereDisks struct {
	// bootGiB is the size of the template's first disk. It can only grow.
	// Empty takes the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	BootGiB int32 `json:"bootGiB,omitempty"`

	// templateGiB are the sizes of the template's other disks in order; 0
	// leaves one as it is. They can only grow. Empty leaves all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=60
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=63488
	TemplateGiB []int32 `json:"templateGiB,omitempty"`

	// data are further disks, empty ones. They go with the VM. Empty adds none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=60
	Data []NovaVSphereDataDisk `json:"data,omitempty"`
}

// NovaVSphereProvisioning says when a disk takes its space.
// +kubebuilder:validation:Enum=Thin;Thick;EagerZeroed
type NovaVSphereProvisioning string

// Values of NovaVSphereProvisioning.
const (
	// ProvisioningThin takes space as it is written.
	ProvisioningThin NovaVSphereProvisioning = "Thin"
	// ProvisioningThick takes all space at once and zeroes it when it is used.
	ProvisioningThick NovaVSphereProvisioning = "Thick"
	// ProvisioningEagerZeroed takes all space and zeroes it at once.
	ProvisioningEagerZeroed NovaVSphereProvisioning = "EagerZeroed"
)

// NovaVSphereDataDisk is an empty disk.
type NovaVSphereDataDisk struct {
	// name tells the disk from others, for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// sizeGiB is the disk's size.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	SizeGiB int32 `json:"sizeGiB,omitempty"`

	// provisioning is Thin, Thick or EagerZeroed. Empty leaves it to the
	// storage policy and the datastore.
	// +optional
	Provisioning NovaVSphereProvisioning `json:"provisioning,omitempty"`

	// datastore is the name or inventory path of the disk's datastore. Empty
	// takes the VM's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Datastore string `json:"datastore,omitempty"`

	// storagePolicy is the name of the disk's storage policy. Empty takes the
	// VM's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StoragePolicy string `json:"storagePolicy,omitempty"`

	// controller is what the disk is connected to. Empty takes a free place on
	// the controller of the boot disk, and further ones like it.
	// +optional
	Controller NovaVSphereController `json:"controller,omitempty,omitzero"`
}

// NovaVSphereControllerType is a kind of disk controller.
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

// NovaVSphereController is a place that a disk is connected to. A controller
// that the template lacks is added.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.unit) || has(self.bus)",message="unit needs bus"
type NovaVSphereController struct {
	// type is the kind of controller. Empty takes the boot disk's.
	// +optional
	Type NovaVSphereControllerType `json:"type,omitempty"`

	// bus is the controller's number among those of its kind. Empty takes the
	// first with room.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3
	Bus *int32 `json:"bus,omitempty"`

	// unit is the disk's number on the controller. Empty takes the first that
	// is free.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=63
	Unit *int32 `json:"unit,omitempty"`
}
