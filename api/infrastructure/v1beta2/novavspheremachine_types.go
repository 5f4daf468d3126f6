package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NovaVSphereMachineSpec is the VM behind a machine.
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.source)",message="spec.template or spec.source must say what the VM is cloned from, and only one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.clone) || !has(self.clone.mode) || self.clone.mode != 'Linked' || !has(self.disks) || (!has(self.disks.bootGiB) && !has(self.disks.templateGiB))",message="a linked clone shares the template's disks and cannot grow them: leave disks.bootGiB and disks.templateGiB out, or set clone.mode to LinkedOrFull"
// +kubebuilder:validation:XValidation:rule="!has(self.clone) || !has(self.clone.mode) || self.clone.mode != 'Linked' || !has(self.hardware) || !has(self.hardware.encryption) || !has(self.hardware.encryption.keyProvider)",message="a linked clone has the key of its template: leave hardware.encryption.keyID and keyProvider out, or set clone.mode to Full"
type NovaVSphereMachineSpec struct {
	MachineSpec `json:",inline"`

	// template is the name or inventory path of the template the VM is cloned
	// from. Empty says it by source.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Template string `json:"template,omitempty"`

	// source is what the VM is cloned from, where it is not said by template.
	// Empty says it by template.
	// +optional
	Source NovaVSphereSource `json:"source,omitempty,omitzero"`

	// clone is how the VM is cloned. Empty copies the disks.
	// +optional
	Clone NovaVSphereClone `json:"clone,omitempty,omitzero"`

	// placement is where the VM goes. A field that is empty takes the
	// cluster's.
	// +optional
	Placement NovaVSpherePlacement `json:"placement,omitempty,omitzero"`

	// hardware is what the VM gets. Empty takes the template's.
	// +optional
	Hardware NovaVSphereHardware `json:"hardware,omitempty,omitzero"`

	// disks are the VM's disks. Empty takes the template's.
	// +optional
	Disks NovaVSphereDisks `json:"disks,omitempty,omitzero"`

	// network is what the VM is connected to.
	// +required
	Network NovaVSphereNetwork `json:"network,omitempty,omitzero"`

	// spread says whether the machines of one control plane or
	// MachineDeployment are kept on different hosts: Never, Preferred or
	// Required. It can change. Empty takes the cluster's.
	// +optional
	Spread NovaVSphereSpread `json:"spread,omitempty"`

	// marks are what people see of the VM in vCenter: tags and custom
	// attributes. They can change. Empty sets none.
	// +optional
	Marks NovaVSphereMarks `json:"marks,omitempty,omitzero"`
}

// SourceName says for people what the VM is cloned from.
func (s *NovaVSphereMachineSpec) SourceName() string {
	return sourceName(s.Template, s.Source)
}

func sourceName(template string, source NovaVSphereSource) string {
	switch item := source.ContentLibrary; {
	case source.UUID != "":
		return "the template with the UUID " + source.UUID
	case source.Reference != "":
		return source.Reference
	case item.Item != "":
		return item.Item + " of the content library " + item.Library
	default:
		return template
	}
}

// SpreadMode is how the machine is kept apart from its like in cluster. By
// default, only machines of a control plane are.
func (m *NovaVSphereMachine) SpreadMode(cluster *NovaVSphereClusterSpec) NovaVSphereSpread {
	switch {
	case m.Spec.Spread != "":
		return m.Spec.Spread
	case cluster != nil && cluster.Spread != "":
		return cluster.Spread
	}
	if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return SpreadPreferred
	}
	return SpreadNever
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavspheremachines,scope=Namespaced,categories=cluster-api,shortName=novavsma
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Machine')].name",description="Machine that owns it",priority=10
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the VM is up"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='VirtualMachineProvisioned')].reason",description="How far the VM is"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type=='InternalIP')].address",description="Internal addresses"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.host",description="Host the VM runs on"
// +kubebuilder:printcolumn:name="Domain",type="string",JSONPath=".status.failureDomain",description="Failure domain the VM is in",priority=10
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template",description="vCenter template",priority=10
// +kubebuilder:printcolumn:name="ProviderID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaVSphereMachine is a machine that is a VM on vCenter.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name becomes the node's name and can have at most 63 characters"
type NovaVSphereMachine struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Only providerID, powerOff, spread and marks
	// can change.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.template) == has(oldSelf.template) && has(self.source) == has(oldSelf.source) && has(self.clone) == has(oldSelf.clone) && has(self.placement) == has(oldSelf.placement) && has(self.hardware) == has(oldSelf.hardware) && has(self.disks) == has(oldSelf.disks)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="(!has(self.template) || !has(oldSelf.template) || self.template == oldSelf.template) && (!has(self.source) || !has(oldSelf.source) || self.source == oldSelf.source) && (!has(self.clone) || !has(oldSelf.clone) || self.clone == oldSelf.clone) && (!has(self.placement) || !has(oldSelf.placement) || self.placement == oldSelf.placement)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.hardware) || !has(oldSelf.hardware) || self.hardware == oldSelf.hardware",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="!has(self.disks) || !has(oldSelf.disks) || self.disks == oldSelf.disks",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="has(self.naming) == has(oldSelf.naming) && (!has(self.naming) || self.naming == oldSelf.naming)",message="spec is immutable: change the machine template to replace machines"
	// +kubebuilder:validation:XValidation:rule="self.network == oldSelf.network",message="spec is immutable: change the machine template to replace machines"
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
	// +kubebuilder:validation:XValidation:rule="self.network.interfaces.all(i, !has(i.addresses) && !has(i.macAddress))",message="addresses and macAddress belong to one machine and cannot stand in a template: take addresses from pools"
	Spec NovaVSphereMachineSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavspheremachinetemplates,scope=Namespaced,categories=cluster-api,shortName=novavsmat
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.ownerReferences[?(@.kind=='Cluster')].name",description="Cluster whose machines are made from it"
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=".spec.template.spec.template",description="vCenter template"
// +kubebuilder:printcolumn:name="CPUs",type="string",JSONPath=".status.capacity.cpu",description="Virtual processors"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory"
// +kubebuilder:printcolumn:name="Disk",type="string",JSONPath=".status.capacity.ephemeral-storage",description="Boot disk",priority=10
// +kubebuilder:printcolumn:name="CapacityKnown",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].status",description="Whether it is known what machines will have"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='CapacityKnown')].message",description="Why that is not known"

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

	// status is what machines made from it will have. Empty until it is known.
	// +optional
	Status MachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (t *NovaVSphereMachineTemplate) GetConditions() []metav1.Condition { return t.Status.Conditions }

// SetConditions replaces the conditions.
func (t *NovaVSphereMachineTemplate) SetConditions(conditions []metav1.Condition) {
	t.Status.Conditions = conditions
}

// Capacity returns what machines made from the template will have; writing to
// it writes to the object.
func (t *NovaVSphereMachineTemplate) Capacity() *MachineTemplateStatus { return &t.Status }

// +kubebuilder:object:root=true

// NovaVSphereMachineTemplateList is a list of NovaVSphereMachineTemplates.
type NovaVSphereMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereMachineTemplate `json:"items"`
}
