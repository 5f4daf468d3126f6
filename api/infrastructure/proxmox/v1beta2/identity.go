package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// NovaProxmoxIdentitySpec selects which Proxmox VE cluster and which of its objects
// clusters of the allowed namespaces may use.
// +kubebuilder:validation:XValidation:rule="!has(self.additionalServers) || !has(self.tls) || !has(self.tls.thumbprint)",message="a thumbprint is of the certificate of one node: use tls.caBundle with additionalServers"
type NovaProxmoxIdentitySpec struct {
	infrav1.IdentitySpec `json:",inline"`

	// additionalServers are other nodes of the same Proxmox VE cluster, in the form of
	// server. Requests are sent to one of them while server does not accept connections.
	// A change replaces no machines. If not set, only server is used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[][0-9A-Za-z._:-]+$')",message="a server is a host name or address with an optional port, without scheme, path or credentials"
	AdditionalServers []string `json:"additionalServers,omitempty"`

	// bounds limit the objects of Proxmox VE that clusters may use. A change replaces
	// nothing; existing VMs stay unchanged. If not set, they may use all that the user
	// may use.
	// +optional
	Bounds NovaProxmoxBounds `json:"bounds,omitempty,omitzero"`
}

// NovaProxmoxBounds are the objects of Proxmox VE that clusters may use, by name.
// +kubebuilder:validation:MinProperties=1
type NovaProxmoxBounds struct {
	// nodes are the nodes that VMs may be created on. If not set, any node may be
	// used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Nodes []string `json:"nodes,omitempty"`

	// storages are the storages that disks and bootstrap data may be stored on. If not
	// set, any storage may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Storages []string `json:"storages,omitempty"`

	// networks are the bridges and virtual networks that VMs may be connected to. An
	// entry with a VLAN or a range, such as vmbr0/100 or vmbr0/100-199, allows only
	// interfaces with such a vlan. An entry without one allows the whole network with all
	// its VLANs: on a bridge that is aware of VLANs, a guest without vlan can tag its own
	// packets. If not set, any network may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[^/]+(/[1-9][0-9]{0,3}(-[1-9][0-9]{0,3})?)?$')",message="an entry is the name of a network, or a name with a VLAN or a range of VLANs, such as vmbr0/100 or vmbr0/100-199"
	Networks []string `json:"networks,omitempty"`

	// pools are the resource pools of VMs. If set, machines need a pool. If not set, any
	// pool may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Pools []string `json:"pools,omitempty"`

	// pciMappings are the resource mappings whose PCI devices VMs may use. If not set, any
	// mapping may be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	PCIMappings []string `json:"pciMappings,omitempty"`

	// templates are the names of the templates that may be cloned. If not set, any
	// template may be cloned.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Templates []string `json:"templates,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaproxmoxidentities,scope=Cluster,categories=cluster-api,shortName=novapxid
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".spec.server",description="Server"
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".spec.credentialsSecretRef.name",description="Secret in the manager's namespace"
// +kubebuilder:printcolumn:name="Namespaces",type="string",JSONPath=".spec.allowedNamespaces.list",description="Namespaces in the list that may use it",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaProxmoxIdentity holds credentials for Proxmox VE that clusters of several
// namespaces may use, within its bounds.
type NovaProxmoxIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaProxmoxIdentitySpec `json:"spec,omitempty,omitzero"`
}

// Common returns the fields that every hypervisor's identity has; writing to
// them writes to the object.
func (i *NovaProxmoxIdentity) Common() *infrav1.IdentitySpec { return &i.Spec.IdentitySpec }

// +kubebuilder:object:root=true

// NovaProxmoxIdentityList is a list of NovaProxmoxIdentities.
type NovaProxmoxIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaProxmoxIdentity `json:"items"`
}
