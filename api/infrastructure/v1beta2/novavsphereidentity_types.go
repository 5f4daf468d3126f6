package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NovaVSphereIdentityKind is the kind of a shared vCenter account.
const NovaVSphereIdentityKind = "NovaVSphereIdentity"

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavsphereidentities,scope=Cluster,categories=cluster-api,shortName=nvsi
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".spec.secretName",description="Secret with the account"
// +kubebuilder:printcolumn:name="Namespaces",type="string",JSONPath=".spec.allowedNamespaces.list",description="Namespaces named that may use it",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaVSphereIdentity is a vCenter account that clusters of several namespaces
// may use.
type NovaVSphereIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec IdentitySpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaVSphereIdentityList is a list of NovaVSphereIdentities.
type NovaVSphereIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereIdentity `json:"items"`
}

// Common returns the fields that every hypervisor's identity has.
func (i *NovaVSphereIdentity) Common() *IdentitySpec { return &i.Spec }
