package v1beta2

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// DefaultZVirtProviderIDPrefix is the default of providerIDPrefix.
const DefaultZVirtProviderIDPrefix = "zvirt"

// NovaZVirtIdentityKind is the kind of a cluster-scoped identity for engines.
const NovaZVirtIdentityKind = "NovaZVirtIdentity"

// NovaZVirtClusterSpec contains the settings that the machines of one workload
// cluster share on a zVirt or oVirt engine.
// +kubebuilder:validation:XValidation:rule="has(self.providerIDPrefix) == has(oldSelf.providerIDPrefix) && (!has(self.providerIDPrefix) || self.providerIDPrefix == oldSelf.providerIDPrefix)",message="providerIDPrefix cannot change: nodes already have it"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind in ['Secret', 'NovaZVirtIdentity']",message="identityRef.kind must be Secret or NovaZVirtIdentity",fieldPath=".identityRef.kind"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.server)",message="server must not be set with a NovaZVirtIdentity: the server comes from the identity"
// +kubebuilder:validation:XValidation:rule="!has(self.identityRef) || !has(self.identityRef.kind) || self.identityRef.kind == 'Secret' || !has(self.tls)",message="tls must not be set with a NovaZVirtIdentity: it comes from the identity, together with the server"
type NovaZVirtClusterSpec struct {
	infrav1.ClusterSpec `json:",inline"`

	// template is the template of machines that do not name one. A change affects
	// new machines only. If not set, each machine must name a template, unless its
	// failure domain does.
	// +optional
	Template NovaZVirtTemplate `json:"template,omitempty,omitzero"`

	// placement is the default placement of machines. Fields that a machine or its
	// failure domain sets replace it. A change affects new machines only. If not
	// set, the only cluster of the engine is used; it is an error if there is more
	// than one.
	// +optional
	Placement NovaZVirtPlacement `json:"placement,omitempty,omitzero"`

	// failureDomains are the failure domains that Cluster API distributes machines
	// over. Fields of a failure domain replace those of machines and of the cluster. A
	// change affects new machines only, except for affinityLabel. If not set, the
	// cluster has none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []NovaZVirtFailureDomain `json:"failureDomains,omitempty"`

	// providerIDPrefix is the scheme of provider IDs, for a cloud controller manager
	// that expects another one. It cannot change. Defaults to zvirt, as in
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

// NovaZVirtPlacement is where a VM is created. Each field is a name or an ID.
// +kubebuilder:validation:MinProperties=1
type NovaZVirtPlacement struct {
	// datacenter is the data center. If not set, it follows from computeCluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Datacenter string `json:"datacenter,omitempty"`

	// computeCluster is the engine's cluster of hosts. If not set, the only cluster
	// of the data center is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ComputeCluster string `json:"computeCluster,omitempty"`

	// storageDomain is the storage domain of disks that do not name one. If not set,
	// copies of the template's disks are stored where those of the template are, and
	// data disks where the boot disk is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StorageDomain string `json:"storageDomain,omitempty"`

	// quota is the quota of the data center that VMs and their disks count
	// towards. A data center that enforces quotas needs it. If not set, the
	// default quota of the engine is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Quota string `json:"quota,omitempty"`

	// hosts are the hosts that a VM runs on. The engine prefers them for a VM that can
	// migrate, and uses no other for a VM that cannot (migrationMode). Affinity labels
	// bind both. If not set, any host of the cluster is used.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Hosts []string `json:"hosts,omitempty"`
}

// NovaZVirtFailureDomain is a part of the engine that fails as a whole. Its fields
// replace those of machines and of the cluster.
type NovaZVirtFailureDomain struct {
	infrav1.FailureDomain `json:",inline"`

	// placement is where machines of this failure domain are created. A change affects
	// new machines only. Fields that are not set have the value of the machine, or
	// else of the cluster.
	// +optional
	Placement NovaZVirtPlacement `json:"placement,omitempty,omitzero"`

	// template is the template of machines in this failure domain. A change affects
	// new machines only. If not set, the template of the machine is used, or else of
	// the cluster.
	// +optional
	Template NovaZVirtTemplate `json:"template,omitempty,omitzero"`

	// affinityLabel is the name of an affinity label for machines of this failure
	// domain, so that they run on the hosts that have it, too. After a change existing
	// VMs get the new label and keep the old one. If not set, they get none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	AffinityLabel string `json:"affinityLabel,omitempty"`
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
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Address of the API server of the workload cluster"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version of the engine",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of Ready"

// NovaZVirtCluster is the infrastructure of a workload cluster on a zVirt or
// oVirt engine.
type NovaZVirtCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.server) || has(self.identityRef) && has(self.identityRef.kind) && self.identityRef.kind != 'Secret'",message="server is required: the credentials are in a Secret, which has only user name and password"
	Spec NovaZVirtClusterSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state.
	// +optional
	Status infrav1.ClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaZVirtCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaZVirtCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// Common returns the fields that every hypervisor's cluster has; writing to
// them writes to the object.
func (c *NovaZVirtCluster) Common() (*infrav1.ClusterSpec, *infrav1.ClusterStatus) {
	return &c.Spec.ClusterSpec, &c.Status
}

// Identity returns the identityRef with its defaults.
func (c *NovaZVirtCluster) Identity() infrav1.IdentityReference {
	return infrav1.IdentityOf(c, &c.Spec.ClusterSpec)
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
	// template is the template of NovaZVirtClusters.
	// +required
	Template NovaZVirtClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaZVirtClusterTemplateResource holds metadata and spec of a NovaZVirtCluster.
type NovaZVirtClusterTemplateResource struct {
	// metadata holds labels and annotations for the cluster. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the cluster.
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
