package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NovaVSphereMachineSpec is the VM behind a machine.
type NovaVSphereMachineSpec struct {
	MachineSpec `json:",inline"`

	// template is the name or inventory path of the template the VM is cloned
	// from.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Template string `json:"template,omitempty"`

	// placement is where the VM goes. A field that is empty takes the
	// cluster's.
	// +optional
	Placement NovaVSpherePlacement `json:"placement,omitempty,omitzero"`

	// hardware is what the VM gets. Empty takes the template's.
	// +optional
	Hardware NovaVSphereHardware `json:"hardware,omitempty,omitzero"`

	// network is what the VM is connected to.
	// +required
	Network NovaVSphereNetwork `json:"network,omitempty,omitzero"`
}

// NovaVSphereHardware is the virtual hardware of a VM.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.coresPerSocket) || (has(self.cpus) && self.cpus % self.coresPerSocket == 0)",message="cpus must be set and be a multiple of coresPerSocket"
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
}

// NovaVSphereNetwork is what a VM is connected to.
type NovaVSphereNetwork struct {
	// interfaces are the VM's network interfaces in order; they replace the
	// template's.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Interfaces []NovaVSphereInterface `json:"interfaces,omitempty"`
}

// NovaVSphereInterface is one network interface. It asks DHCP for an IPv4 address.
type NovaVSphereInterface struct {
	// network is the name or inventory path of the network: a standard or
	// distributed port group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavspheremachines,scope=Namespaced,categories=cluster-api,shortName=nvsm
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Machine')].name",description="Machine that owns it",priority=10
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the VM is up"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='VirtualMachineProvisioned')].reason",description="How far the VM is"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address",description="Internal addresses"
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaVSphereMachine is a machine that is a VM on vCenter.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name becomes the VM's and the node's name and can have at most 63 characters"
type NovaVSphereMachine struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Only providerID can change.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template && self.network == oldSelf.network && has(self.placement) == has(oldSelf.placement) && (!has(self.placement) || self.placement == oldSelf.placement) && has(self.hardware) == has(oldSelf.hardware) && (!has(self.hardware) || self.hardware == oldSelf.hardware)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",message="providerID cannot change once it is set"
	Spec NovaVSphereMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Empty until the first reconcile.
	// +optional
	Status MachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (m *NovaVSphereMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions.
func (m *NovaVSphereMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's machine has; writing to
// them writes to the object.
func (m *NovaVSphereMachine) Common() (*MachineSpec, *MachineStatus) {
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
	// template is what a NovaVSphereMachine is made from.
	// +required
	Template NovaVSphereMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaVSphereMachineTemplateResource is the machine to make.
type NovaVSphereMachineTemplateResource struct {
	// metadata holds labels and annotations for the machine. Empty adds none.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the machine's spec.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="providerID belongs to one machine and cannot stand in a template"
	Spec NovaVSphereMachineSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavspheremachinetemplates,scope=Namespaced,categories=cluster-api,shortName=nvsmt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.spec.template",description="vCenter template"
// +kubebuilder:printcolumn:name="CPUs",type="integer",JSONPath=".spec.template.spec.hardware.cpus",description="Virtual processors"
// +kubebuilder:printcolumn:name="MemoryMiB",type="integer",JSONPath=".spec.template.spec.hardware.memoryMiB",description="Memory in MiB"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaVSphereMachineTemplate is a template for machines.
type NovaVSphereMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable: name a new template to roll
	// a change out.
	// +required
	Spec NovaVSphereMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaVSphereMachineTemplateList is a list of NovaVSphereMachineTemplates.
type NovaVSphereMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereMachineTemplate `json:"items"`
}
