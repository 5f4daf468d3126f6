package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtidentities,scope=Cluster,categories=cluster-api,shortName=nzvi
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".spec.secretName",description="Secret in the manager's namespace"
// +kubebuilder:printcolumn:name="Namespaces",type="string",JSONPath=".spec.allowedNamespaces.list",description="Namespaces named that may use it",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaZVirtIdentity is an account of an engine that clusters of several
// namespaces may use.
type NovaZVirtIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the account and who may use it.
	// +required
	Spec IdentitySpec `json:"spec,omitempty,omitzero"`
}

// Common returns the fields that every hypervisor's identity has; writing to
// them writes to the object.
func (i *NovaZVirtIdentity) Common() *IdentitySpec { return &i.Spec }

// +kubebuilder:object:root=true

// NovaZVirtIdentityList is a list of NovaZVirtIdentities.
type NovaZVirtIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaZVirtIdentity `json:"items"`
}
