package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaVSphereMachineSpec is the VM of a machine.
// +kubebuilder:validation:XValidation:rule="!has(self.cloneMode) || self.cloneMode != 'Linked' || !has(self.disks) || (!has(self.disks.boot) && !has(self.disks.template))",message="a linked clone shares the disks of the template and cannot grow them: leave disks.boot and disks.template out, or set cloneMode to LinkedOrFull"
// +kubebuilder:validation:XValidation:rule="!has(self.cloneMode) || self.cloneMode != 'Linked' || !has(self.hardware) || !has(self.hardware.encryption) || !has(self.hardware.encryption.keyProvider)",message="a linked clone has the key of its template: leave hardware.encryption.keyID and keyProvider out, or set cloneMode to Full"
type NovaVSphereMachineSpec struct {
	infrav1.MachineSpec `json:",inline"`

	// template is the template that the VM is cloned from. A machine template with
	// another value, once it is referenced, rolls out machines. If not set, the
	// template of the cluster is used.
	// +optional
	Template NovaVSphereTemplate `json:"template,omitempty,omitzero"`

	// cloneMode is Full, Linked or LinkedOrFull. Full copies the disks of the
	// template. Linked stores only differences from a snapshot of the template, which
	// must not be deleted. LinkedOrFull is Full if the template has no snapshot, or if
	// one of its disks is to grow. A machine template with another value, once it is
	// referenced, rolls out machines. Defaults to Full.
	// +optional
	CloneMode infrav1.CloneMode `json:"cloneMode,omitempty"`

	// placement is where the VM is created. A machine template with another value,
	// once it is referenced, rolls out machines. Fields that are not set have the
	// value of the cluster.
	// +optional
	Placement NovaVSpherePlacement `json:"placement,omitempty,omitzero"`

	// hardware is the virtual hardware of the VM. A machine template with another
	// value, once it is referenced, rolls out machines; cpus and memoryMiB can increase
	// in place with rollout.inPlace. If not set, the VM has the
	// hardware of the template.
	// +optional
	Hardware NovaVSphereHardware `json:"hardware,omitempty,omitzero"`

	// disks are the disks of the VM. A machine template with another value, once it is
	// referenced, rolls out machines. If not set, the VM has the disks of the
	// template.
	// +optional
	Disks NovaVSphereDisks `json:"disks,omitempty,omitzero"`

	// network has the network interfaces of the VM. A machine template with another
	// value, once it is referenced, rolls out machines. If not set, the VM has one
	// interface on the network of the cluster, which requests an IPv4 address by DHCP.
	// +optional
	Network NovaVSphereNetwork `json:"network,omitempty,omitzero"`

	// tags are attached to the VM. They can change in a machine, which is not
	// replaced. A tag that is removed from the list stays on the VM. If not set, no
	// tags are attached.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Tags []NovaVSphereTag `json:"tags,omitempty"`

	// tagsFromLabels are keys of labels of the machine. The value of each becomes a
	// tag in the category with the name of the key. It can change in a machine,
	// which is not replaced. If not set, no labels become tags.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	TagsFromLabels []string `json:"tagsFromLabels,omitempty"`

	// customAttributes are custom attributes of the VM. They can change in a
	// machine, which is not replaced. If not set, none are set.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	CustomAttributes []NovaVSphereCustomAttribute `json:"customAttributes,omitempty"`

	// createMissingTags creates categories, tags and custom attributes that do not
	// exist in the vCenter. It can change in a machine, which is not replaced.
	// Defaults to false: VirtualMachineSynced is false while one is missing.
	// +optional
	CreateMissingTags *bool `json:"createMissingTags,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavspheremachines,scope=Namespaced,categories=cluster-api,shortName=novavsma
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Machine')].name",description="Machine that owns it",priority=10
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the VM is up"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='VirtualMachineProvisioned')].reason",description="Reason of VirtualMachineProvisioned"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address",description="Internal addresses"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.host",description="Host the VM runs on"
// +kubebuilder:printcolumn:name="Domain",type="string",JSONPath=".status.failureDomain",description="Failure domain the VM is in",priority=10
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.name",description="Template in the vCenter",priority=10
// +kubebuilder:printcolumn:name="VM",type="string",JSONPath=".status.vmID",description="ID of the VM in the hypervisor",priority=10
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of Ready"

// NovaVSphereMachine is a machine that is a VM on a vCenter.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name becomes the node's name and can have at most 63 characters"
type NovaVSphereMachine struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Only providerID, powerOff, antiAffinity, tags,
	// tagsFromLabels, customAttributes and createMissingTags can change, and
	// hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase while Cluster
	// API updates the machine in place.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.template) == has(oldSelf.template) && has(self.cloneMode) == has(oldSelf.cloneMode) && has(self.network) == has(oldSelf.network) && has(self.placement) == has(oldSelf.placement) && has(self.hardware) == has(oldSelf.hardware) && has(self.disks) == has(oldSelf.disks)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="(!has(self.template) || !has(oldSelf.template) || self.template == oldSelf.template) && (!has(self.cloneMode) || !has(oldSelf.cloneMode) || self.cloneMode == oldSelf.cloneMode) && (!has(self.placement) || !has(oldSelf.placement) || self.placement == oldSelf.placement)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.cpuTopology) == has(oldSelf.hardware.cpuTopology) && (!has(self.hardware.cpuTopology) || self.hardware.cpuTopology == oldSelf.hardware.cpuTopology) && has(self.hardware.cpuHotAdd) == has(oldSelf.hardware.cpuHotAdd) && (!has(self.hardware.cpuHotAdd) || self.hardware.cpuHotAdd == oldSelf.hardware.cpuHotAdd) && has(self.hardware.memoryHotAdd) == has(oldSelf.hardware.memoryHotAdd) && (!has(self.hardware.memoryHotAdd) || self.hardware.memoryHotAdd == oldSelf.hardware.memoryHotAdd) && has(self.hardware.memoryReservationMiB) == has(oldSelf.hardware.memoryReservationMiB) && (!has(self.hardware.memoryReservationMiB) || self.hardware.memoryReservationMiB == oldSelf.hardware.memoryReservationMiB) && has(self.hardware.memoryLimitMiB) == has(oldSelf.hardware.memoryLimitMiB) && (!has(self.hardware.memoryLimitMiB) || self.hardware.memoryLimitMiB == oldSelf.hardware.memoryLimitMiB) && has(self.hardware.memoryShares) == has(oldSelf.hardware.memoryShares) && (!has(self.hardware.memoryShares) || self.hardware.memoryShares == oldSelf.hardware.memoryShares))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.cpuReservationMHz) == has(oldSelf.hardware.cpuReservationMHz) && (!has(self.hardware.cpuReservationMHz) || self.hardware.cpuReservationMHz == oldSelf.hardware.cpuReservationMHz) && has(self.hardware.cpuLimitMHz) == has(oldSelf.hardware.cpuLimitMHz) && (!has(self.hardware.cpuLimitMHz) || self.hardware.cpuLimitMHz == oldSelf.hardware.cpuLimitMHz) && has(self.hardware.cpuShares) == has(oldSelf.hardware.cpuShares) && (!has(self.hardware.cpuShares) || self.hardware.cpuShares == oldSelf.hardware.cpuShares) && has(self.hardware.version) == has(oldSelf.hardware.version) && (!has(self.hardware.version) || self.hardware.version == oldSelf.hardware.version) && has(self.hardware.nestedVirtualization) == has(oldSelf.hardware.nestedVirtualization) && (!has(self.hardware.nestedVirtualization) || self.hardware.nestedVirtualization == oldSelf.hardware.nestedVirtualization) && has(self.hardware.firmware) == has(oldSelf.hardware.firmware) && (!has(self.hardware.firmware) || self.hardware.firmware == oldSelf.hardware.firmware))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.secureBoot) == has(oldSelf.hardware.secureBoot) && (!has(self.hardware.secureBoot) || self.hardware.secureBoot == oldSelf.hardware.secureBoot) && has(self.hardware.trustedPlatformModule) == has(oldSelf.hardware.trustedPlatformModule) && (!has(self.hardware.trustedPlatformModule) || self.hardware.trustedPlatformModule == oldSelf.hardware.trustedPlatformModule) && has(self.hardware.pciDevices) == has(oldSelf.hardware.pciDevices) && (!has(self.hardware.pciDevices) || self.hardware.pciDevices == oldSelf.hardware.pciDevices) && has(self.hardware.vgpuProfiles) == has(oldSelf.hardware.vgpuProfiles) && (!has(self.hardware.vgpuProfiles) || self.hardware.vgpuProfiles == oldSelf.hardware.vgpuProfiles) && has(self.hardware.encryption) == has(oldSelf.hardware.encryption) && (!has(self.hardware.encryption) || self.hardware.encryption == oldSelf.hardware.encryption) && has(self.hardware.extraConfig) == has(oldSelf.hardware.extraConfig) && (!has(self.hardware.extraConfig) || self.hardware.extraConfig == oldSelf.hardware.extraConfig))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || (has(self.hardware.cpus) == has(oldSelf.hardware.cpus) && (!has(self.hardware.cpus) || self.hardware.cpus >= oldSelf.hardware.cpus) && has(self.hardware.memoryMiB) == has(oldSelf.hardware.memoryMiB) && (!has(self.hardware.memoryMiB) || self.hardware.memoryMiB >= oldSelf.hardware.memoryMiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.disks) || !has(oldSelf.disks) || (has(self.disks.boot) == has(oldSelf.disks.boot) && has(self.disks.template) == has(oldSelf.disks.template) && (!has(self.disks.template) || self.disks.template == oldSelf.disks.template) && has(self.disks.data) == has(oldSelf.disks.data) && (!has(self.disks.data) || self.disks.data == oldSelf.disks.data))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.disks) || !has(oldSelf.disks) || !has(self.disks.boot) || !has(oldSelf.disks.boot) || (has(self.disks.boot.sizeGiB) == has(oldSelf.disks.boot.sizeGiB) && (!has(self.disks.boot.sizeGiB) || self.disks.boot.sizeGiB >= oldSelf.disks.boot.sizeGiB))",message="spec is immutable, except that hardware.cpus, hardware.memoryMiB and disks.boot.sizeGiB can increase in place: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="has(self.naming) == has(oldSelf.naming) && (!has(self.naming) || self.naming == oldSelf.naming)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.network) || !has(oldSelf.network) || self.network == oldSelf.network",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID cannot change once it is set"
	Spec NovaVSphereMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state.
	// +optional
	Status infrav1.MachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (m *NovaVSphereMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions.
func (m *NovaVSphereMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's machine has; writing to
// them writes to the object.
func (m *NovaVSphereMachine) Common() (*infrav1.MachineSpec, *infrav1.MachineStatus) {
	return &m.Spec.MachineSpec, &m.Status
}

// +kubebuilder:object:root=true

// NovaVSphereMachineList is a list of NovaVSphereMachines.
type NovaVSphereMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereMachine `json:"items"`
}

// NovaVSphereMachineTemplateSpec holds the template.
type NovaVSphereMachineTemplateSpec struct {
	// template is the template of NovaVSphereMachines.
	// +required
	Template NovaVSphereMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaVSphereMachineTemplateResource holds metadata and spec of a NovaVSphereMachine.
type NovaVSphereMachineTemplateResource struct {
	// metadata holds labels and annotations for the machine. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the machine.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="providerID belongs to one machine and cannot be set in a template"
	// +kubebuilder:validation:XValidation:rule="!has(self.network) || self.network.interfaces.all(i, !has(i.addresses) && !has(i.macAddress))",message="addresses and macAddress belong to one machine and cannot be set in a template: use addressesFromPools"
	Spec NovaVSphereMachineSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavspheremachinetemplates,scope=Namespaced,categories=cluster-api,shortName=novavsmat
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Cluster')].name",description="Cluster that uses the template"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.spec.template.name",description="Template in the vCenter"
// +kubebuilder:printcolumn:name="CPUs",type="string",JSONPath=".status.capacity.cpu",description="Virtual processors"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory"
// +kubebuilder:printcolumn:name="Disk",type="string",JSONPath=".status.capacity.ephemeral-storage",description="Boot disk",priority=10
// +kubebuilder:printcolumn:name="CapacityKnown",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].status",description="Whether the capacity of machines is known"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].message",description="Message of CapacityKnown"

// NovaVSphereMachineTemplate is a template for machines.
type NovaVSphereMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable: create a template of another name
	// and refer to it to roll out a change.
	// +required
	Spec NovaVSphereMachineTemplateSpec `json:"spec,omitempty,omitzero"`

	// status is the capacity of machines of the template.
	// +optional
	Status infrav1.MachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (t *NovaVSphereMachineTemplate) GetConditions() []metav1.Condition { return t.Status.Conditions }

// SetConditions replaces the conditions.
func (t *NovaVSphereMachineTemplate) SetConditions(conditions []metav1.Condition) {
	t.Status.Conditions = conditions
}

// Capacity returns the status of the template; writing to it writes to the object.
func (t *NovaVSphereMachineTemplate) Capacity() *infrav1.MachineTemplateStatus { return &t.Status }

// +kubebuilder:object:root=true

// NovaVSphereMachineTemplateList is a list of NovaVSphereMachineTemplates.
type NovaVSphereMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereMachineTemplate `json:"items"`
}
