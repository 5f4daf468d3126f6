package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaVSphereIdentityKind is the kind of a cluster-scoped identity for a vCenter.
const NovaVSphereIdentityKind = "NovaVSphereIdentity"

// NovaVSphereIdentitySpec selects which vCenter and which of its objects clusters
// of the allowed namespaces may use.
type NovaVSphereIdentitySpec struct {
	infrav1.IdentitySpec `json:",inline"`

	// bounds limit the objects of the vCenter that clusters may use. A change replaces
	// nothing; existing VMs stay unchanged. If not set, they may use all that the
	// vCenter user may use, and clone templates only.
	// +optional
	Bounds NovaVSphereBounds `json:"bounds,omitempty,omitzero"`
}

// NovaVSphereBounds are the objects of a vCenter that clusters may use. An
// entry that begins with a slash is an inventory path, any other is a name; an
// entry allows the object and all objects below it. The driver compares entries
// with the inventory path of the object that it found, however a cluster or
// machine names it.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereBounds struct {
	// folders are the VM folders that VMs may be created in. placement.createFolder
	// creates folders only below an entry that is a path. If not set, any folder
	// may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Folders []string `json:"folders,omitempty"`

	// resourcePools are the resource pools that VMs may be created in. The path
	// of a compute cluster, such as /DC0/host/C0, allows all of its pools. If
	// not set, any resource pool may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	ResourcePools []string `json:"resourcePools,omitempty"`

	// networks are the networks that VMs may be connected to. If not set, any
	// network may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Networks []string `json:"networks,omitempty"`

	// datastores are the datastores and datastore clusters that disks may be
	// stored on. If not set, any datastore may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Datastores []string `json:"datastores,omitempty"`

	// storagePolicies are the names of the storage policies that may be used.
	// If not set, any storage policy may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	StoragePolicies []string `json:"storagePolicies,omitempty"`

	// templates are the templates that may be cloned; the path of a folder
	// allows those in it. If templates or contentLibraries is set, no other
	// source may be cloned. If neither is set, any template may be cloned.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Templates []string `json:"templates,omitempty"`

	// contentLibraries are the names of the content libraries whose items may be
	// cloned. If templates or contentLibraries is set, no other source may be
	// cloned. If neither is set, any item may be cloned.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	ContentLibraries []string `json:"contentLibraries,omitempty"`

	// allowVMSources allows sources that are VMs and not templates. The VM of a
	// machine is never a source. If not set, only templates may be cloned.
	// +optional
	AllowVMSources *bool `json:"allowVMSources,omitempty"`

	// extraConfigKeys are the keys, or prefixes that end in a period or an
	// asterisk, that names in hardware.extraConfig may have in addition to those
	// that are always allowed. If not set, no others are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	ExtraConfigKeys []string `json:"extraConfigKeys,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novavsphereidentities,scope=Cluster,categories=cluster-api,shortName=novavsid
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".spec.server",description="vCenter"
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".spec.credentialsSecretRef.name",description="Secret in the manager's namespace"
// +kubebuilder:printcolumn:name="Namespaces",type="string",JSONPath=".spec.allowedNamespaces.list",description="Namespaces in the list that may use it",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaVSphereIdentity holds credentials for a vCenter that clusters of several
// namespaces may use, within its bounds.
type NovaVSphereIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaVSphereIdentitySpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaVSphereIdentityList is a list of NovaVSphereIdentities.
type NovaVSphereIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaVSphereIdentity `json:"items"`
}

// Common returns the fields that every hypervisor's identity has.
func (i *NovaVSphereIdentity) Common() *infrav1.IdentitySpec { return &i.Spec.IdentitySpec }
