package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaZVirtIdentitySpec selects which engine and which of its objects clusters of
// the allowed namespaces may use.
type NovaZVirtIdentitySpec struct {
	infrav1.IdentitySpec `json:",inline"`

	// bounds limit the objects of the engine that clusters may use. A change replaces
	// nothing; existing VMs stay unchanged. If not set, they may use all that the
	// engine's user may use.
	// +optional
	Bounds NovaZVirtBounds `json:"bounds,omitempty,omitzero"`

	// filter is true for a user without an administrative role: each request then has
	// the header Filter, with which the engine returns the objects that the user has
	// permissions for. The engine ignores placement.hosts and migrationMode then, and
	// does not report the host of a VM. A change replaces no machines. If not set, the
	// user needs an administrative role.
	// +optional
	Filter *bool `json:"filter,omitempty"`
}

// NovaZVirtBounds are the objects of an engine that clusters may use. Entries
// are names or IDs. The driver compares them with the object that it found,
// however a cluster or machine names it. Machines are cloned from templates
// only, never from VMs.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtBounds struct {
	// computeClusters are the engine's clusters of hosts that VMs may be created in.
	// If not set, any cluster may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	ComputeClusters []string `json:"computeClusters,omitempty"`

	// storageDomains are the storage domains that disks and leases may be
	// stored on. If not set, any storage domain may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	StorageDomains []string `json:"storageDomains,omitempty"`

	// networks are the vNIC profiles that VMs may be connected to, as
	// network/profile or ID. The name of a network allows all of its profiles.
	// If not set, any profile may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Networks []string `json:"networks,omitempty"`

	// templates are the templates that may be cloned. A name allows all
	// versions of the template. If not set, any template may be cloned.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Templates []string `json:"templates,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtidentities,scope=Cluster,categories=cluster-api,shortName=novazvid
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".spec.server",description="Engine"
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".spec.credentialsSecretRef.name",description="Secret in the manager's namespace"
// +kubebuilder:printcolumn:name="Namespaces",type="string",JSONPath=".spec.allowedNamespaces.list",description="Namespaces in the list that may use it",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaZVirtIdentity holds credentials for an engine that clusters of several
// namespaces may use, within its bounds.
type NovaZVirtIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaZVirtIdentitySpec `json:"spec,omitempty,omitzero"`
}

// Common returns the fields that every hypervisor's identity has; writing to
// them writes to the object.
func (i *NovaZVirtIdentity) Common() *infrav1.IdentitySpec { return &i.Spec.IdentitySpec }

// +kubebuilder:object:root=true

// NovaZVirtIdentityList is a list of NovaZVirtIdentities.
type NovaZVirtIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaZVirtIdentity `json:"items"`
}
