package v1beta2

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// DefaultProxmoxProviderIDPrefix is the default of providerIDPrefix.
const DefaultProxmoxProviderIDPrefix = "proxmox"

// NovaProxmoxIdentityKind is the kind of a cluster-scoped identity for Proxmox VE.
const NovaProxmoxIdentityKind = "NovaProxmoxIdentity"

// NovaProxmoxClusterSpec contains the settings that the machines of one workload
// cluster share on a Proxmox VE cluster.
// +kubebuilder:validation:XValidation:rule="has(self.providerIDPrefix) == has(oldSelf.providerIDPrefix) && (!has(self.providerIDPrefix) || self.providerIDPrefix == oldSelf.providerIDPrefix)",message="providerIDPrefix cannot change: nodes already have it"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind in ['Secret', 'NovaProxmoxIdentity']",message="identityRef.kind must be Secret or NovaProxmoxIdentity",fieldPath=".identityRef.kind"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.server)",message="server must not be set with a NovaProxmoxIdentity: the server comes from the identity"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.tls)",message="tls must not be set with a NovaProxmoxIdentity: it comes from the identity, together with the server"
// +kubebuilder:validation:XValidation:rule="has(self.vmIDs) == has(oldSelf.vmIDs) && (!has(self.vmIDs) || self.vmIDs == oldSelf.vmIDs)",message="vmIDs cannot change: the IDs of existing VMs follow from it"
// +kubebuilder:validation:XValidation:rule="!has(self.additionalServers) || has(self.server)",message="additionalServers belong to server: set server, or set additionalServers in the identity"
// +kubebuilder:validation:XValidation:rule="!has(self.additionalServers) || !has(self.tls) || !has(self.tls.thumbprint)",message="a thumbprint is of the certificate of one node: use tls.caBundle with additionalServers"
type NovaProxmoxClusterSpec struct {
	infrav1.ClusterSpec `json:",inline"`

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

	// template is the template of machines that do not name one. A change affects
	// new machines only. If not set, each machine must name a template, unless its
	// failure domain does.
	// +optional
	Template NovaProxmoxTemplate `json:"template,omitempty,omitzero"`

	// placement is the default placement of machines. Fields that a machine or its
	// failure domain sets replace it. A change affects new machines only. If not set,
	// the driver chooses the node with the most free memory, and the storage of the
	// template.
	// +optional
	Placement NovaProxmoxPlacement `json:"placement,omitempty,omitzero"`

	// vmIDs is the range of the IDs of VMs. It cannot change. An ID in the range that
	// another guest has is not used. If not set, the range is 1000000 to 999999999.
	// +optional
	VMIDs NovaProxmoxVMIDRange `json:"vmIDs,omitempty,omitzero"`

	// failureDomains are the failure domains that Cluster API distributes machines
	// over. Fields of a failure domain replace those of machines and of the cluster. A
	// change affects new machines only. If not set, the cluster has none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []NovaProxmoxFailureDomain `json:"failureDomains,omitempty"`

	// providerIDPrefix is the scheme of provider IDs, for a cloud controller manager
	// that expects another one. It cannot change. Defaults to proxmox, as in
	// proxmox://<UUID of the VM>.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9+.-]*$`
	ProviderIDPrefix string `json:"providerIDPrefix,omitempty"`
}

// GetProviderIDPrefix returns the scheme of provider IDs.
func (s *NovaProxmoxClusterSpec) GetProviderIDPrefix() string {
	return cmp.Or(s.ProviderIDPrefix, DefaultProxmoxProviderIDPrefix)
}

// NovaProxmoxVMIDRange is a range of IDs of VMs.
// +kubebuilder:validation:XValidation:rule="self.end - self.start >= 99",message="the range must have at least 100 IDs: an ID follows from the name of the machine, and two machines can get the same one"
type NovaProxmoxVMIDRange struct {
	// start is the first ID.
	// +required
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=999999999
	Start int32 `json:"start,omitempty"`

	// end is the last ID.
	// +required
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=999999999
	End int32 `json:"end,omitempty"`
}

// Default range of the IDs of VMs.
const (
	DefaultFirstVMID = 1000000
	DefaultLastVMID  = 999999999
)

// GetVMIDs returns the range of the IDs of VMs.
func (s *NovaProxmoxClusterSpec) GetVMIDs() (first, last int32) {
	return cmp.Or(s.VMIDs.Start, DefaultFirstVMID), cmp.Or(s.VMIDs.End, DefaultLastVMID)
}

// NovaProxmoxPlacement is where a VM is created. Each field is a name.
// +kubebuilder:validation:MinProperties=1
type NovaProxmoxPlacement struct {
	// nodes are the nodes that a VM can be created on. The driver chooses the one with
	// the fewest VMs of the machine's group (antiAffinity), and among these the one
	// with the most free memory. If not set, every online node can be used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Nodes []string `json:"nodes,omitempty"`

	// storage is the storage of disks that do not name one. Disks of a linked clone
	// remain on the storage of the template. If not set, copies of the template's disks
	// are stored where those of the template are, and data disks where the boot disk is.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=100
	Storage string `json:"storage,omitempty"`

	// bootstrapStorage is the storage of the image with the bootstrap data, which is
	// deleted after the node has joined. It needs the content type iso. If not set, a
	// storage of the node with this content type is used, a shared one if there is one.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=100
	BootstrapStorage string `json:"bootstrapStorage,omitempty"`

	// pool is the resource pool of the VM, which must exist. If not set, the VM is in
	// no pool.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Pool string `json:"pool,omitempty"`
}

// NovaProxmoxFailureDomain is a set of nodes that fails as a whole. Its fields
// replace those of machines and of the cluster.
type NovaProxmoxFailureDomain struct {
	infrav1.FailureDomain `json:",inline"`

	// placement is where machines of this failure domain are created. A change affects
	// new machines only. Fields that are not set have the value of the machine, or
	// else of the cluster.
	// +optional
	Placement NovaProxmoxPlacement `json:"placement,omitempty,omitzero"`

	// template is the template of machines in this failure domain. A change affects
	// new machines only. If not set, the template of the machine is used, or else of
	// the cluster.
	// +optional
	Template NovaProxmoxTemplate `json:"template,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaproxmoxclusters,scope=Namespaced,categories=cluster-api,shortName=novapxcl
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether machines can be created"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why they can or cannot"
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".status.server",description="Server"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Address of the API server of the workload cluster"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version of Proxmox VE",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of Ready"

// NovaProxmoxCluster is the infrastructure of a workload cluster on a Proxmox VE
// cluster.
type NovaProxmoxCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.server) || has(self.identityRef) && has(self.identityRef.kind) && self.identityRef.kind != 'Secret'",message="server is required: the credentials are in a Secret, which has only user name and password"
	Spec NovaProxmoxClusterSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state.
	// +optional
	Status infrav1.ClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaProxmoxCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaProxmoxCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's cluster has; writing to
// them writes to the object.
func (c *NovaProxmoxCluster) Common() (*infrav1.ClusterSpec, *infrav1.ClusterStatus) {
	return &c.Spec.ClusterSpec, &c.Status
}

// Identity returns the identityRef with its defaults.
func (c *NovaProxmoxCluster) Identity() infrav1.IdentityReference {
	return infrav1.IdentityOf(c, &c.Spec.ClusterSpec)
}

// +kubebuilder:object:root=true

// NovaProxmoxClusterList is a list of NovaProxmoxClusters.
type NovaProxmoxClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaProxmoxCluster `json:"items"`
}

// NovaProxmoxClusterTemplateSpec holds the template.
type NovaProxmoxClusterTemplateSpec struct {
	// template is the template of NovaProxmoxClusters.
	// +required
	Template NovaProxmoxClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaProxmoxClusterTemplateResource holds metadata and spec of a NovaProxmoxCluster.
type NovaProxmoxClusterTemplateResource struct {
	// metadata holds labels and annotations for the cluster. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the cluster.
	// +required
	Spec NovaProxmoxClusterSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaproxmoxclustertemplates,scope=Namespaced,categories=cluster-api,shortName=novapxclt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".spec.template.spec.server",description="Server of the hypervisor"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaProxmoxClusterTemplate is a template for ClusterClasses.
type NovaProxmoxClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable.
	// +required
	Spec NovaProxmoxClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaProxmoxClusterTemplateList is a list of NovaProxmoxClusterTemplates.
type NovaProxmoxClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaProxmoxClusterTemplate `json:"items"`
}
