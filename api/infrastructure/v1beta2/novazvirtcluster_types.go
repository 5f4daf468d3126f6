package v1beta2

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// DefaultZVirtProviderIDPrefix is the scheme of provider IDs when the cluster
// does not say another.
const DefaultZVirtProviderIDPrefix = "zvirt"

// NovaZVirtIdentityKind is the kind of a cluster-scoped identity for engines.
const NovaZVirtIdentityKind = "NovaZVirtIdentity"

// NovaZVirtClusterSpec is what the machines of one tenant share on a zVirt or
// oVirt engine.
// +kubebuilder:validation:XValidation:rule="has(self.providerIDPrefix) == has(oldSelf.providerIDPrefix) && (!has(self.providerIDPrefix) || self.providerIDPrefix == oldSelf.providerIDPrefix)",message="providerIDPrefix cannot change: nodes already carry it"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.server)",message="server must not be set with a NovaZVirtIdentity: the server comes from the identity"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.tls)",message="tls must not be set with a NovaZVirtIdentity: it comes from the identity, together with the server"
type NovaZVirtClusterSpec struct {
	ClusterSpec `json:",inline"`

	// identityRef names the credentials for the engine.
	// +required
	IdentityRef NovaZVirtIdentityReference `json:"identityRef,omitempty,omitzero"`

	// placement is where machines go that do not say it themselves. Empty
	// takes the engine's only cluster, and is an error where there are several.
	// +optional
	Placement NovaZVirtPlacement `json:"placement,omitempty,omitzero"`

	// vnicProfile is the vNIC profile of interfaces that name none, as
	// network/profile or by ID. Empty means that every interface names one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	VNICProfile string `json:"vnicProfile,omitempty"`

	// failureDomains are the domains that machines can be spread over. What a
	// domain says goes before what the machine says. Empty means none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	FailureDomains []NovaZVirtFailureDomain `json:"failureDomains,omitempty"`

	// providerIDPrefix is the scheme of provider IDs, for a cloud controller
	// manager that expects one of its own. Empty means zvirt, as in
	// zvirt://<ID of the VM>.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9+.-]*$`
	ProviderIDPrefix string `json:"providerIDPrefix,omitempty"`
}

// GetProviderIDPrefix returns the scheme of provider IDs.
func (s *NovaZVirtClusterSpec) GetProviderIDPrefix() string {
	return cmp.Or(s.ProviderIDPrefix, DefaultZVirtProviderIDPrefix)
}

// NovaZVirtIdentityReference names credentials.
type NovaZVirtIdentityReference struct {
	// kind is Secret, a Secret in the namespace of the cluster with the keys
	// username and password, or NovaZVirtIdentity, an account that several
	// namespaces share. Empty means Secret.
	// +optional
	// +kubebuilder:validation:Enum=Secret;NovaZVirtIdentity
	Kind string `json:"kind,omitempty"`

	// name is the name of the Secret or the NovaZVirtIdentity.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// NovaZVirtPlacement is where a VM goes. Each field is a name or an ID.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtPlacement struct {
	// dataCenter is the data center. Empty takes that of the cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	DataCenter string `json:"dataCenter,omitempty"`

	// cluster is the engine's cluster of hosts. Empty takes the only one of
	// the data center.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Cluster string `json:"cluster,omitempty"`

	// storageDomain is where disks go that do not say it themselves. Empty
	// leaves a template's disks where the template's are; data disks then
	// have to name one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StorageDomain string `json:"storageDomain,omitempty"`

	// quota is the quota of the data center that VMs and their disks count
	// towards. A data center that enforces quotas needs it. If not set, the
	// engine takes its default quota.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Quota string `json:"quota,omitempty"`

	// hosts are those a VM is to run on. The engine prefers them for a VM that
	// is migratable and takes no other for one that is not
	// (placementPolicy.affinity); affinity labels bind both. Empty means any
	// of the cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Hosts []string `json:"hosts,omitempty"`
}

// NovaZVirtFailureDomain is a domain that fails as a whole.
type NovaZVirtFailureDomain struct {
	// name is the name of the domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$`
	Name string `json:"name,omitempty"`

	// controlPlane says whether control plane machines may go there. Empty
	// means true.
	// +optional
	ControlPlane *bool `json:"controlPlane,omitempty"`

	// placement is where the domain's machines go. A field that is empty
	// takes the machine's, or the cluster's.
	// +optional
	Placement NovaZVirtPlacement `json:"placement,omitempty,omitzero"`

	// vnicProfiles are the vNIC profiles of a machine's interfaces in their
	// order, as network/profile or by ID. Interfaces beyond the last keep
	// their own. Empty changes none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	VNICProfiles []string `json:"vnicProfiles,omitempty"`

	// template is the domain's copy of the template. Empty takes the
	// machine's.
	// +optional
	Template NovaZVirtTemplateReference `json:"template,omitempty,omitzero"`

	// affinityLabel is the name of an affinity label that the domain's
	// machines carry, so that they run on the hosts that carry it, too. Empty
	// means none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	AffinityLabel string `json:"affinityLabel,omitempty"`
}

// IsControlPlane reports whether control plane machines may go there.
func (d *NovaZVirtFailureDomain) IsControlPlane() bool {
	return d.ControlPlane == nil || *d.ControlPlane
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtclusters,scope=Namespaced,categories=cluster-api,shortName=novazvcl
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether machines can be created"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why they can or cannot"
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".status.server",description="Engine"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Address of the tenant's API server"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version of the engine",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaZVirtCluster is the infrastructure of a tenant cluster on a zVirt or
// oVirt engine.
type NovaZVirtCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.server) || has(self.identityRef.kind) && self.identityRef.kind != 'Secret'",message="server is required: identityRef names a Secret, which holds only user name and password"
	Spec NovaZVirtClusterSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Empty until the first reconcile.
	// +optional
	Status ClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaZVirtCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaZVirtCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's cluster has; writing to
// them writes to the object.
func (c *NovaZVirtCluster) Common() (*ClusterSpec, *ClusterStatus) {
	return &c.Spec.ClusterSpec, &c.Status
}

// +kubebuilder:object:root=true

// NovaZVirtClusterList is a list of NovaZVirtClusters.
type NovaZVirtClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaZVirtCluster `json:"items"`
}

// NovaZVirtClusterTemplateSpec holds the template.
type NovaZVirtClusterTemplateSpec struct {
	// template is what a NovaZVirtCluster is made from.
	// +required
	Template NovaZVirtClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaZVirtClusterTemplateResource is the cluster to make.
type NovaZVirtClusterTemplateResource struct {
	// metadata holds labels and annotations for the cluster. Empty adds none.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the cluster's spec.
	// +required
	Spec NovaZVirtClusterSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novazvirtclustertemplates,scope=Namespaced,categories=cluster-api,shortName=novazvclt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".spec.template.spec.server",description="Server of the hypervisor"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaZVirtClusterTemplate is a template for ClusterClasses.
type NovaZVirtClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable.
	// +required
	Spec NovaZVirtClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaZVirtClusterTemplateList is a list of NovaZVirtClusterTemplates.
type NovaZVirtClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaZVirtClusterTemplate `json:"items"`
}
