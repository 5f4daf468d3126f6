package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NovaVSphereClusterSpec is what the machines of one tenant share on vCenter.
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.server)",message="server must not be set with a NovaVSphereIdentity: the server comes from the identity"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.tls)",message="tls must not be set with a NovaVSphereIdentity: it comes from the identity, together with the server"
type NovaVSphereClusterSpec struct {
	ClusterSpec `json:",inline"`

	// identityRef names the credentials for the vCenter.
	// +required
	IdentityRef NovaVSphereIdentityReference `json:"identityRef,omitempty,omitzero"`

	// placement is where machines go that do not say it themselves. Empty
	// takes vCenter's only datacenter, resource pool and datastore, and is an
	// error where there are several.
	// +optional
	Placement NovaVSpherePlacement `json:"placement,omitempty,omitzero"`

	// failureDomains are the parts of the vCenter that fail on their own, among
	// which Cluster API spreads machines. Empty means there is only one.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []NovaVSphereFailureDomain `json:"failureDomains,omitempty"`

	// spread says whether the machines of one control plane or
	// MachineDeployment are kept on different hosts: Never, Preferred or
	// Required. Machines can say otherwise. If not set, machines of a control
	// plane have Preferred, and all others Never.
	// +optional
	Spread NovaVSphereSpread `json:"spread,omitempty"`
}

// NovaVSphereIdentityReference names credentials.
type NovaVSphereIdentityReference struct {
	// kind is Secret, a Secret in the namespace of the cluster with the keys
	// username and password, or NovaVSphereIdentity, an account that the
	// managers' administrator shares. Empty means Secret.
	// +optional
	// +kubebuilder:validation:Enum=Secret;NovaVSphereIdentity
	Kind string `json:"kind,omitempty"`

	// name is the name of the Secret or NovaVSphereIdentity.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavsphereclusters,scope=Namespaced,categories=cluster-api,shortName=novavscl
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether machines can be created"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why they can or cannot"
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".status.server",description="vCenter"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Address of the tenant's API server"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version of the vCenter",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaVSphereCluster is the infrastructure of a tenant cluster on vCenter.
type NovaVSphereCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.server) || has(self.identityRef.kind) && self.identityRef.kind != 'Secret'",message="server is required: identityRef names a Secret, which holds only user name and password"
	Spec NovaVSphereClusterSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Empty until the first reconcile.
	// +optional
	Status ClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaVSphereCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaVSphereCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's cluster has; writing to
// them writes to the object.
func (c *NovaVSphereCluster) Common() (*ClusterSpec, *ClusterStatus) {
	return &c.Spec.ClusterSpec, &c.Status
}

// +kubebuilder:object:root=true

// NovaVSphereClusterList is a list of NovaVSphereClusters.
type NovaVSphereClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereCluster `json:"items"`
}

// NovaVSphereClusterTemplateSpec holds the template.
type NovaVSphereClusterTemplateSpec struct {
	// template is what a NovaVSphereCluster is made from.
	// +required
	Template NovaVSphereClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaVSphereClusterTemplateResource is the cluster to make.
type NovaVSphereClusterTemplateResource struct {
	// metadata holds labels and annotations for the cluster. Empty adds none.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the cluster's spec.
	// +required
	Spec NovaVSphereClusterSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavsphereclustertemplates,scope=Namespaced,categories=cluster-api,shortName=novavsclt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".spec.template.spec.server",description="Server of the hypervisor"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaVSphereClusterTemplate is a template for ClusterClasses.
type NovaVSphereClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable.
	// +required
	Spec NovaVSphereClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaVSphereClusterTemplateList is a list of NovaVSphereClusterTemplates.
type NovaVSphereClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereClusterTemplate `json:"items"`
}
