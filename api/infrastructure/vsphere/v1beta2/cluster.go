package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaVSphereClusterSpec contains the settings that the machines of one workload
// cluster share on a vCenter.
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind in ['Secret', 'NovaVSphereIdentity']",message="identityRef.kind must be Secret or NovaVSphereIdentity",fieldPath=".identityRef.kind"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.server)",message="server must not be set with a NovaVSphereIdentity: the server comes from the identity"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.tls)",message="tls must not be set with a NovaVSphereIdentity: it comes from the identity, together with the server"
type NovaVSphereClusterSpec struct {
	infrav1.ClusterSpec `json:",inline"`

	// template is the template of machines that do not name one. A change affects
	// new machines only. If not set, each machine must name a template, unless its
	// failure domain does.
	// +optional
	Template NovaVSphereTemplate `json:"template,omitempty,omitzero"`

	// placement is the default placement of machines. Fields that a machine or its
	// failure domain sets replace it. A change affects new machines only, except for
	// vmGroup. If not set, the only datacenter, resource pool and datastore of the
	// vCenter are used; it is an error if there is more than one.
	// +optional
	Placement NovaVSpherePlacement `json:"placement,omitempty,omitzero"`

	// failureDomains are the failure domains that Cluster API distributes machines
	// over. Fields of a failure domain replace those of machines and of the cluster. A
	// change affects new machines only, except for vmGroup of placement. If not set,
	// the cluster has none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []NovaVSphereFailureDomain `json:"failureDomains,omitempty"`
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
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Address of the API server of the workload cluster"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version of the vCenter",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of Ready"

// NovaVSphereCluster is the infrastructure of a workload cluster on a vCenter.
type NovaVSphereCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.server) || has(self.identityRef) && has(self.identityRef.kind) && self.identityRef.kind != 'Secret'",message="server is required: the credentials are in a Secret, which has only user name and password"
	Spec NovaVSphereClusterSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state.
	// +optional
	Status infrav1.ClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaVSphereCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaVSphereCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's cluster has; writing to
// them writes to the object.
func (c *NovaVSphereCluster) Common() (*infrav1.ClusterSpec, *infrav1.ClusterStatus) {
	return &c.Spec.ClusterSpec, &c.Status
}

// Identity returns the identityRef with its defaults.
func (c *NovaVSphereCluster) Identity() infrav1.IdentityReference {
	return infrav1.IdentityOf(c, &c.Spec.ClusterSpec)
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
	// template is the template of NovaVSphereClusters.
	// +required
	Template NovaVSphereClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaVSphereClusterTemplateResource holds metadata and spec of a NovaVSphereCluster.
type NovaVSphereClusterTemplateResource struct {
	// metadata holds labels and annotations for the cluster. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the cluster.
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
