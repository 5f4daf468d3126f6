package v1beta2

import (
	"cmp"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaProxmoxMachineSpec is the VM of a machine.
// +kubebuilder:validation:XValidation:rule="!has(self.naming) || !has(self.naming.template) || !self.naming.template.contains('_')",message="the name of a VM in Proxmox VE is a DNS name: naming.template cannot have an underscore"
type NovaProxmoxMachineSpec struct {
	infrav1.MachineSpec `json:",inline"`

	// template is the template that the VM is created from. A machine template with
	// another value, once it is referenced, rolls out machines. If not set, the
	// template of the cluster is used.
	// +optional
	Template NovaProxmoxTemplate `json:"template,omitempty,omitzero"`

	// cloneMode is Full, Linked or LinkedOrFull. Full copies the disks of the
	// template. Linked stores only differences from the template, which then cannot be
	// deleted. LinkedOrFull is Full if the disks are to have another storage than in
	// the template. A machine template with another
	// value, once it is referenced, rolls out machines. Defaults to LinkedOrFull.
	// +optional
	CloneMode infrav1.CloneMode `json:"cloneMode,omitempty"`

	// placement is where the VM is created. A machine template with another
	// value, once it is referenced, rolls out machines. Fields that are not set have the
	// value of the cluster.
	// +optional
	Placement NovaProxmoxPlacement `json:"placement,omitempty,omitzero"`

	// hardware is the virtual hardware of the VM. A machine template with another
	// value, once it is referenced, rolls out machines; cpus and memoryMiB can increase
	// in place with rollout.inPlace. If not set, the VM has the
	// hardware of the template.
	// +optional
	Hardware NovaProxmoxHardware `json:"hardware,omitempty,omitzero"`

	// disks are the disks of the VM. A machine template with another
	// value, once it is referenced, rolls out machines. If not set, the VM has the disks of the
	// template.
	// +optional
	Disks NovaProxmoxDisks `json:"disks,omitempty,omitzero"`

	// network has the network interfaces of the VM. A machine template with another
	// value, once it is referenced, rolls out machines. If not set, the VM has one
	// interface on the network of the cluster, which requests an IPv4 address by DHCP.
	// +optional
	Network NovaProxmoxNetwork `json:"network,omitempty,omitzero"`

	// startOnBoot starts the VM when its node starts. A machine template with another
	// value, once it is referenced, rolls out machines. If not set, the setting of
	// the template is used.
	// +optional
	StartOnBoot *bool `json:"startOnBoot,omitempty"`

	// highAvailability lets the HA manager of Proxmox VE restart the VM, on another node
	// if its node fails. It takes effect once the node has joined, and can change in a
	// machine, which is not replaced. If not set, the driver does not add the VM to the
	// HA manager.
	// +optional
	HighAvailability NovaProxmoxHighAvailability `json:"highAvailability,omitempty,omitzero"`

	// tags are attached to the VM, in lower case. They can change in a machine, which is
	// not replaced. A tag that is removed from the list stays on the VM. If not set, the
	// VM has only the tags that the driver needs, which begin with nova-.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9_][a-z0-9_.+-]*$')",message="a tag has lower-case letters, digits and _ . + -, and does not begin with . + or -"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('nova-')",message="tags that begin with nova- belong to the driver"
	Tags []string `json:"tags,omitempty"`
}

// NovaProxmoxHighAvailability has the settings of a VM in the HA manager.
// +kubebuilder:validation:MinProperties=1
type NovaProxmoxHighAvailability struct {
	// maxRestart is how often the HA manager tries to start the VM again on its node.
	// Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	MaxRestart *int32 `json:"maxRestart,omitempty"`

	// maxRelocate is how often the HA manager tries to start the VM on another node if
	// it does not start on its node. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	MaxRelocate *int32 `json:"maxRelocate,omitempty"`

	// failback moves the VM back to a preferred node when that is online again. It needs
	// Proxmox VE 9. If not set, Proxmox VE's default is used, which is true.
	// +optional
	Failback *bool `json:"failback,omitempty"`
}

// NovaProxmoxTemplate is the template that VMs are created from. If several
// templates fit, as with local storage, where each node has its own, the one on the
// chosen node is used.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="(has(self.name) ? 1 : 0) + (has(self.id) ? 1 : 0) + (has(self.tag) ? 1 : 0) == 1",message="set exactly one of name, id and tag"
type NovaProxmoxTemplate struct {
	// name is the name of the template. Mutually exclusive with id and tag.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`

	// id is the ID of the template. Mutually exclusive with name and tag.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=999999999
	ID int32 `json:"id,omitempty"`

	// tag is a tag of the template. Mutually exclusive with name and id.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Tag string `json:"tag,omitempty"`
}

// String describes the template for people.
func (t *NovaProxmoxTemplate) String() string {
	if t.ID != 0 {
		return strconv.Itoa(int(t.ID))
	}
	return cmp.Or(t.Name, t.Tag)
}

// NovaProxmoxHardware is the virtual hardware of a VM.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.cpuTopology) || (has(self.cpus) && self.cpus % (has(self.cpuTopology.coresPerSocket) ? self.cpuTopology.coresPerSocket : 1) == 0)",message="cpus must be set and be a multiple of cpuTopology.coresPerSocket"
// +kubebuilder:validation:XValidation:rule="!has(self.maxCPUs) || (has(self.cpus) && self.cpus <= self.maxCPUs && (!has(self.cpuTopology) || !has(self.cpuTopology.coresPerSocket) || self.maxCPUs % self.cpuTopology.coresPerSocket == 0))",message="maxCPUs needs cpus, cannot be less than cpus, and must be a multiple of cpuTopology.coresPerSocket"
// +kubebuilder:validation:XValidation:rule="!has(self.memoryHotAdd) || !self.memoryHotAdd || (has(self.numa) && self.numa && has(self.memoryMiB) && self.memoryMiB >= 1024 && self.memoryMiB % 512 == 0)",message="memoryHotAdd needs numa and memoryMiB, which must be at least 1024 and a multiple of 512"
// +kubebuilder:validation:XValidation:rule="!has(self.minMemoryMiB) || (has(self.memoryMiB) && self.minMemoryMiB <= self.memoryMiB)",message="minMemoryMiB needs memoryMiB and cannot be more than it"
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || (has(self.firmware) && self.firmware == 'EFI')",message="secureBoot needs the firmware EFI"
// +kubebuilder:validation:XValidation:rule="!has(self.trustedPlatformModule) || !self.trustedPlatformModule || (has(self.firmware) && self.firmware == 'EFI')",message="trustedPlatformModule needs the firmware EFI"
type NovaProxmoxHardware struct {
	// cpus is the number of virtual CPUs. If not set, the VM has as many as the
	// template.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CPUs int32 `json:"cpus,omitempty"`

	// cpuTopology defines how the virtual CPUs are divided into sockets. If not set, the
	// VM has one socket.
	// +optional
	CPUTopology infrav1.CPUTopology `json:"cpuTopology,omitempty,omitzero"`

	// maxCPUs is the number of CPUs that the VM can have while it runs: Proxmox VE
	// prepares the VM for them, and its node must have as many. It cannot be less than
	// cpus. If not set, no CPUs can be added while the VM runs.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	MaxCPUs int32 `json:"maxCPUs,omitempty"`

	// memoryHotAdd lets Proxmox VE add memory while the VM runs. It needs numa, and
	// memoryMiB must be 1024 and a multiple of 512 more, above 17408 a multiple of 1024.
	// Defaults to false.
	// +optional
	MemoryHotAdd *bool `json:"memoryHotAdd,omitempty"`

	// cpuType is the type of CPU that the VM sees, by its name in Proxmox VE, such as
	// x86-64-v3 or host. If not set, it is that of the template.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	CPUType string `json:"cpuType,omitempty"`

	// numa shows the NUMA nodes of the host to the guest. If not set, the setting of the
	// template is used.
	// +optional
	NUMA *bool `json:"numa,omitempty"`

	// memoryMiB is the memory in MiB. If not set, the VM has as much as the template.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=25165824
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// minMemoryMiB lets the node reclaim unused memory down to this size (ballooning).
	// The kubelet does not notice it. If not set, the VM keeps all its memory.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=25165824
	MinMemoryMiB int64 `json:"minMemoryMiB,omitempty"`

	// machineType is the type of machine, such as q35 or pc-q35-9.2. If not set, it is
	// that of the template.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^(pc|q35|pc-[0-9A-Za-z.+-]+|virt[0-9A-Za-z.+-]*)$`
	MachineType string `json:"machineType,omitempty"`

	// firmware is the firmware that the VM boots with: BIOS or EFI. The boot disk of the
	// template must support it. With EFI the VM gets a disk for the variables of the
	// firmware, unless the template has one. If not set, the firmware of the template is
	// used.
	// +optional
	Firmware infrav1.Firmware `json:"firmware,omitempty"`

	// secureBoot starts signed boot loaders only. It needs the firmware EFI, and has no
	// effect if the template has a disk for the variables of the firmware. If not set,
	// firmware EFI has no secure boot.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`

	// trustedPlatformModule gives the VM its own virtual TPM 2.0. It needs the firmware
	// EFI. If not set, the VM has one if the template has one.
	// +optional
	TrustedPlatformModule *bool `json:"trustedPlatformModule,omitempty"`

	// pciDevices are devices of the node that are passed through, by resource mapping.
	// placement.nodes must be nodes that have them. If not set, none are passed through.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	PCIDevices []NovaProxmoxPCIDevice `json:"pciDevices,omitempty"`
}

// NovaProxmoxPCIDevice is a device of a resource mapping.
type NovaProxmoxPCIDevice struct {
	// mapping is the name of the resource mapping.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_-]+$`
	Mapping string `json:"mapping,omitempty"`

	// pcie connects the device to a PCI Express bus. It needs a machineType q35.
	// Defaults to false.
	// +optional
	PCIe *bool `json:"pcie,omitempty"`
}

// NovaProxmoxDisks are the disks of a VM.
// +kubebuilder:validation:MinProperties=1
type NovaProxmoxDisks struct {
	// boot is the boot disk of the template. If not set, it is not changed.
	// +optional
	Boot NovaProxmoxBootDisk `json:"boot,omitempty,omitzero"` //nolint:kubeapilinter // an inlined struct has no name, and the empty object is refused

	// data are additional empty disks, which have the controller SCSI. They are deleted
	// with the VM. If not set, there are none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=23
	Data []NovaProxmoxDataDisk `json:"data,omitempty"`
}

// NovaProxmoxCache is a cache mode of a disk.
// +kubebuilder:validation:Enum=None;WriteThrough;WriteBack;DirectSync;Unsafe
type NovaProxmoxCache string

// NovaProxmoxDiskOptions are options of a disk.
type NovaProxmoxDiskOptions struct {
	// cache is the cache mode: None, WriteThrough, WriteBack, DirectSync or Unsafe. If
	// not set, the mode of the template is used, or that of Proxmox VE.
	// +optional
	Cache NovaProxmoxCache `json:"cache,omitempty"`

	// discard passes discarded blocks to the storage. If not set, the setting of the
	// template is used, or that of Proxmox VE.
	// +optional
	Discard *bool `json:"discard,omitempty"`

	// ioThread gives the disk a thread of its own. It needs the controller
	// virtio-scsi-single. If not set, the setting of the template is used, or that of
	// Proxmox VE.
	// +optional
	IOThread *bool `json:"ioThread,omitempty"`

	// ssd makes the guest see a solid-state disk. If not set, the setting of the
	// template is used, or that of Proxmox VE.
	// +optional
	SSD *bool `json:"ssd,omitempty"`

	// backup includes the disk in backups of the VM. If not set, the setting of the
	// template is used, or that of Proxmox VE.
	// +optional
	Backup *bool `json:"backup,omitempty"`
}

// NovaProxmoxBootDisk is the boot disk of the template.
// +kubebuilder:validation:MinProperties=1
type NovaProxmoxBootDisk struct {
	// sizeGiB is the size that the disk is grown to. If not set, the size is not
	// changed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	SizeGiB int64 `json:"sizeGiB,omitempty"`

	NovaProxmoxDiskOptions `json:",inline"`
}

// NovaProxmoxDataDisk is an empty disk.
type NovaProxmoxDataDisk struct {
	// name is the name of the disk in this list. The guest sees it as the serial number
	// of the disk, nova-<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// sizeGiB is the size of the disk.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63488
	SizeGiB int64 `json:"sizeGiB,omitempty"`

	// storage is the name of the storage. If not set, the storage of the placement is
	// used, or else that of the boot disk.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=100
	Storage string `json:"storage,omitempty"`

	NovaProxmoxDiskOptions `json:",inline"`
}

// NovaProxmoxNetwork has the network interfaces of a VM.
type NovaProxmoxNetwork struct {
	// interfaces are the network interfaces of the VM in order. They replace those
	// of the template.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Interfaces []NovaProxmoxInterface `json:"interfaces,omitempty"`
}

// NovaProxmoxInterfaceType is a type of network adapter.
// +kubebuilder:validation:Enum=VirtIO;E1000;E1000e;RTL8139;VMXNET3
type NovaProxmoxInterfaceType string

// NovaProxmoxInterface is a network interface.
type NovaProxmoxInterface struct {
	// network is the name of a bridge or of a virtual network (SDN). If not set, the
	// network of the cluster is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Network string `json:"network,omitempty"`

	// vlan is the VLAN of the interface. If not set, its packets have no VLAN tag.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// type is the type of network adapter: VirtIO, E1000, E1000e, RTL8139 or VMXNET3.
	// Defaults to VirtIO.
	// +optional
	Type NovaProxmoxInterfaceType `json:"type,omitempty"`

	// mtu is the MTU of the interface, for type VirtIO. If not set, it is that of the
	// bridge.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=65520
	MTU int32 `json:"mtu,omitempty"`

	// firewall applies the firewall of Proxmox VE to the interface. Defaults to false.
	// +optional
	Firewall *bool `json:"firewall,omitempty"`

	// deviceName is the name that the interface gets in the guest, such as eth0. If not
	// set, the guest chooses it.
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

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaproxmoxmachines,scope=Namespaced,categories=cluster-api,shortName=novapxma
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Machine')].name",description="Machine that owns it",priority=10
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the VM is up"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='VirtualMachineProvisioned')].reason",description="Reason of VirtualMachineProvisioned"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address",description="Internal addresses"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.host",description="Node the VM runs on"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.name",description="Template in Proxmox VE",priority=10
// +kubebuilder:printcolumn:name="VM",type="string",JSONPath=".status.vmID",description="ID of the VM in the hypervisor",priority=10
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of Ready"

// NovaProxmoxMachine is a machine that is a VM on a Proxmox VE cluster.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name becomes the node's name and can have at most 63 characters"
type NovaProxmoxMachine struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Only providerID, powerOff, antiAffinity,
	// highAvailability and tags can change, and hardware.cpus, hardware.memoryMiB and
	// disks.boot.sizeGiB can increase while Cluster API updates the machine in place.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.template) == has(oldSelf.template) && has(self.cloneMode) == has(oldSelf.cloneMode) && has(self.placement) == has(oldSelf.placement) && has(self.hardware) == has(oldSelf.hardware) && has(self.disks) == has(oldSelf.disks) && has(self.network) == has(oldSelf.network) && has(self.startOnBoot) == has(oldSelf.startOnBoot) && has(self.naming) == has(oldSelf.naming)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="(!has(self.template) || !has(oldSelf.template) || self.template == oldSelf.template) && (!has(self.cloneMode) || !has(oldSelf.cloneMode) || self.cloneMode == oldSelf.cloneMode) && (!has(self.placement) || !has(oldSelf.placement) || self.placement == oldSelf.placement) && (!has(self.network) || !has(oldSelf.network) || self.network == oldSelf.network) && (!has(self.startOnBoot) || !has(oldSelf.startOnBoot) || self.startOnBoot == oldSelf.startOnBoot) && (!has(self.naming) || !has(oldSelf.naming) || self.naming == oldSelf.naming)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.cpuTopology) == has(oldSelf.hardware.cpuTopology) && (!has(self.hardware.cpuTopology) || self.hardware.cpuTopology == oldSelf.hardware.cpuTopology) && has(self.hardware.maxCPUs) == has(oldSelf.hardware.maxCPUs) && (!has(self.hardware.maxCPUs) || self.hardware.maxCPUs == oldSelf.hardware.maxCPUs) && has(self.hardware.memoryHotAdd) == has(oldSelf.hardware.memoryHotAdd) && (!has(self.hardware.memoryHotAdd) || self.hardware.memoryHotAdd == oldSelf.hardware.memoryHotAdd) && has(self.hardware.cpuType) == has(oldSelf.hardware.cpuType) && (!has(self.hardware.cpuType) || self.hardware.cpuType == oldSelf.hardware.cpuType) && has(self.hardware.numa) == has(oldSelf.hardware.numa) && (!has(self.hardware.numa) || self.hardware.numa == oldSelf.hardware.numa) && has(self.hardware.minMemoryMiB) == has(oldSelf.hardware.minMemoryMiB) && (!has(self.hardware.minMemoryMiB) || self.hardware.minMemoryMiB == oldSelf.hardware.minMemoryMiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.machineType) == has(oldSelf.hardware.machineType) && (!has(self.hardware.machineType) || self.hardware.machineType == oldSelf.hardware.machineType) && has(self.hardware.firmware) == has(oldSelf.hardware.firmware) && (!has(self.hardware.firmware) || self.hardware.firmware == oldSelf.hardware.firmware) && has(self.hardware.secureBoot) == has(oldSelf.hardware.secureBoot) && (!has(self.hardware.secureBoot) || self.hardware.secureBoot == oldSelf.hardware.secureBoot) && has(self.hardware.trustedPlatformModule) == has(oldSelf.hardware.trustedPlatformModule) && (!has(self.hardware.trustedPlatformModule) || self.hardware.trustedPlatformModule == oldSelf.hardware.trustedPlatformModule) && has(self.hardware.pciDevices) == has(oldSelf.hardware.pciDevices) && (!has(self.hardware.pciDevices) || self.hardware.pciDevices == oldSelf.hardware.pciDevices))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.cpus) == has(oldSelf.hardware.cpus) && (!has(self.hardware.cpus) || self.hardware.cpus >= oldSelf.hardware.cpus) && has(self.hardware.memoryMiB) == has(oldSelf.hardware.memoryMiB) && (!has(self.hardware.memoryMiB) || self.hardware.memoryMiB >= oldSelf.hardware.memoryMiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.disks) || !has(oldSelf.disks) || (has(self.disks.boot) == has(oldSelf.disks.boot) && has(self.disks.data) == has(oldSelf.disks.data) && (!has(self.disks.data) || self.disks.data == oldSelf.disks.data))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.disks) || !has(oldSelf.disks) || !has(self.disks.boot) || !has(oldSelf.disks.boot) || (has(self.disks.boot.cache) == has(oldSelf.disks.boot.cache) && (!has(self.disks.boot.cache) || self.disks.boot.cache == oldSelf.disks.boot.cache) && has(self.disks.boot.discard) == has(oldSelf.disks.boot.discard) && (!has(self.disks.boot.discard) || self.disks.boot.discard == oldSelf.disks.boot.discard) && has(self.disks.boot.ioThread) == has(oldSelf.disks.boot.ioThread) && (!has(self.disks.boot.ioThread) || self.disks.boot.ioThread == oldSelf.disks.boot.ioThread) && has(self.disks.boot.ssd) == has(oldSelf.disks.boot.ssd) && (!has(self.disks.boot.ssd) || self.disks.boot.ssd == oldSelf.disks.boot.ssd) && has(self.disks.boot.backup) == has(oldSelf.disks.boot.backup) && (!has(self.disks.boot.backup) || self.disks.boot.backup == oldSelf.disks.boot.backup) && has(self.disks.boot.sizeGiB) == has(oldSelf.disks.boot.sizeGiB) && (!has(self.disks.boot.sizeGiB) || self.disks.boot.sizeGiB >= oldSelf.disks.boot.sizeGiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID cannot change once it is set"
	Spec NovaProxmoxMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state.
	// +optional
	Status infrav1.MachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (m *NovaProxmoxMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions.
func (m *NovaProxmoxMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's machine has; writing to
// them writes to the object.
func (m *NovaProxmoxMachine) Common() (*infrav1.MachineSpec, *infrav1.MachineStatus) {
	return &m.Spec.MachineSpec, &m.Status
}

// Addressing returns how the machine's interfaces get their addresses in a failure
// domain.
func (m *NovaProxmoxMachine) Addressing(domain string) []*infrav1.InterfaceAddressing {
	interfaces := m.Spec.Network.GetInterfaces()
	all := make([]*infrav1.InterfaceAddressing, len(interfaces))
	for i := range interfaces {
		in := interfaces[i].In(domain)
		all[i] = &in.InterfaceAddressing
	}
	return all
}

// MostPools returns the largest number of pools of an interface in any failure domain.
func (m *NovaProxmoxMachine) MostPools(nic int) int {
	n := &m.Spec.Network.GetInterfaces()[nic]
	most := len(n.AddressesFromPools)
	for i := range n.FailureDomains {
		most = max(most, len(n.FailureDomains[i].AddressesFromPools))
	}
	return most
}

// In returns the interface with its settings in a failure domain.
func (n *NovaProxmoxInterface) In(domain string) NovaProxmoxInterface {
	out := *n
	for i := range n.FailureDomains {
		if own := &n.FailureDomains[i]; own.Name == domain {
			out.InterfaceAddressing = n.With(own)
		}
	}
	return out
}

// GetInterfaces returns the network interfaces, or the default: one interface.
func (n *NovaProxmoxNetwork) GetInterfaces() []NovaProxmoxInterface {
	if len(n.Interfaces) == 0 {
		return []NovaProxmoxInterface{{}}
	}
	return n.Interfaces
}

// +kubebuilder:object:root=true

// NovaProxmoxMachineList is a list of NovaProxmoxMachines.
type NovaProxmoxMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaProxmoxMachine `json:"items"`
}

// NovaProxmoxMachineTemplateSpec holds the template.
type NovaProxmoxMachineTemplateSpec struct {
	// template is the template of NovaProxmoxMachines.
	// +required
	Template NovaProxmoxMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaProxmoxMachineTemplateResource holds metadata and spec of a NovaProxmoxMachine.
type NovaProxmoxMachineTemplateResource struct {
	// metadata holds labels and annotations for the machine. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the machine.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="providerID belongs to one machine and cannot be set in a template"
	// +kubebuilder:validation:XValidation:rule="!has(self.network) || self.network.interfaces.all(i, !has(i.addresses) && !has(i.macAddress))",message="addresses and macAddress belong to one machine and cannot be set in a template: use addressesFromPools"
	Spec NovaProxmoxMachineSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaproxmoxmachinetemplates,scope=Namespaced,categories=cluster-api,shortName=novapxmat
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Cluster')].name",description="Cluster that uses the template"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.spec.template.name",description="Template in Proxmox VE"
// +kubebuilder:printcolumn:name="CPUs",type="string",JSONPath=".status.capacity.cpu",description="Virtual processors"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory"
// +kubebuilder:printcolumn:name="Disk",type="string",JSONPath=".status.capacity.ephemeral-storage",description="Boot disk",priority=10
// +kubebuilder:printcolumn:name="CapacityKnown",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].status",description="Whether the capacity of machines is known"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].message",description="Message of CapacityKnown"

// NovaProxmoxMachineTemplate is a template for machines.
type NovaProxmoxMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable: create a template of another name
	// and refer to it to roll out a change.
	// +required
	Spec NovaProxmoxMachineTemplateSpec `json:"spec,omitempty,omitzero"`

	// status is the capacity of machines of the template.
	// +optional
	Status infrav1.MachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (t *NovaProxmoxMachineTemplate) GetConditions() []metav1.Condition { return t.Status.Conditions }

// SetConditions replaces the conditions.
func (t *NovaProxmoxMachineTemplate) SetConditions(conditions []metav1.Condition) {
	t.Status.Conditions = conditions
}

// Capacity returns the status of the template; writing to it writes to the object.
func (t *NovaProxmoxMachineTemplate) Capacity() *infrav1.MachineTemplateStatus { return &t.Status }

// +kubebuilder:object:root=true

// NovaProxmoxMachineTemplateList is a list of NovaProxmoxMachineTemplates.
type NovaProxmoxMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaProxmoxMachineTemplate `json:"items"`
}
