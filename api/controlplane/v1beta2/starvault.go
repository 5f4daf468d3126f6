package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VaultAuthMethod is how the managers sign in to a vault.
type VaultAuthMethod string

const (
	// VaultAppRole signs in with a role ID and a secret ID.
	VaultAppRole VaultAuthMethod = "AppRole"
	// VaultKubernetes signs in with a token of the manager's service account, for the
	// audience starvault.
	VaultKubernetes VaultAuthMethod = "Kubernetes"
	// VaultCertificate signs in with a client certificate.
	VaultCertificate VaultAuthMethod = "Certificate"
)

// NovaStarVaultIdentitySpec is a StarVault that signs the certificates of clusters of
// the allowed namespaces. Server, trust and paths are part of the identity: a cluster
// cannot send the credentials of the managers elsewhere, or use the mounts of another
// one.
type NovaStarVaultIdentitySpec struct {
	// server is the host name or address of the StarVault, with a port if it is not 443,
	// without scheme and path. The credentials are sent to no other server. A change
	// replaces no machines.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[][0-9A-Za-z._:-]+$')",message="server is a host name or address with an optional port, without scheme, path or credentials"
	Server string `json:"server,omitempty"`

	// namespace is the namespace of the StarVault. A change moves no authority: it must
	// have the same mounts. If not set, the root namespace is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z._-]+(/[0-9A-Za-z._-]+)*$')",message="namespace is a path such as platform/clusters, without slashes around it"
	Namespace string `json:"namespace,omitempty"`

	// caBundle is a PEM bundle of the CAs of the server's certificate, which is always
	// verified, by the managers and by nodes. A change replaces no machines. If not set,
	// the CAs of the system are used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="caBundle must hold at least one PEM certificate"
	CABundle string `json:"caBundle,omitempty"`

	// mountPath is the path of the PKI engines of all clusters. Those of a cluster are
	// at <mountPath>/<namespace>.<cluster>/kubernetes, etcd and front-proxy. It cannot
	// be changed. Defaults to nova.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z_-]+(/[0-9A-Za-z_-]+)*$')",message="mountPath is a path such as platform/nova, without slashes around it"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mountPath cannot be changed: the authorities of clusters are there"
	MountPath string `json:"mountPath,omitempty"`

	// auth is how the managers sign in. A change replaces no machines.
	// +required
	Auth VaultAuth `json:"auth,omitempty,omitzero"`

	// nodesAuthPath is the path of an auth method of type approle that only nodes use:
	// the machine that initializes a cluster gets a secret ID that is valid once. A
	// change replaces no machines. Defaults to nova-nodes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z_-]+(/[0-9A-Za-z_-]+)*$')",message="nodesAuthPath is a path such as nova-nodes, without auth and slashes around it"
	NodesAuthPath string `json:"nodesAuthPath,omitempty"`

	// allowedNamespaces are the namespaces whose clusters may use the StarVault. A
	// change replaces nothing; clusters of a namespace that is removed get no new
	// certificates. If not set, no cluster may use it.
	// +optional
	AllowedNamespaces VaultNamespaces `json:"allowedNamespaces,omitempty,omitzero"`
}

// VaultAuth is how the managers sign in to a StarVault.
// +kubebuilder:validation:XValidation:rule="(self.method == 'Kubernetes') == !has(self.secretRef)",message="secretRef is needed for the methods AppRole and Certificate, and cannot be set with Kubernetes"
// +kubebuilder:validation:XValidation:rule="self.method != 'AppRole' || !has(self.role)",message="role cannot be set with the method AppRole: the Secret has the ID of the role"
type VaultAuth struct {
	// method is AppRole, Kubernetes or Certificate. Kubernetes uses a token of the
	// manager's service account for the audience starvault.
	// +required
	// +kubebuilder:validation:Enum=AppRole;Kubernetes;Certificate
	Method VaultAuthMethod `json:"method,omitempty"`

	// path is the path of the auth method in the StarVault. Defaults to approle,
	// kubernetes or cert.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z_-]+(/[0-9A-Za-z_-]+)*$')",message="path is a path such as approle, without auth and slashes around it"
	Path string `json:"path,omitempty"`

	// role is the role to sign in for. Defaults to the name of the manager,
	// nova-control-plane or nova-bootstrap.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Role string `json:"role,omitempty"`

	// secretRef names a Secret in the namespace of each manager: with the keys roleID and
	// secretID for AppRole, or tls.crt and tls.key for Certificate. If not set, there is
	// none.
	// +optional
	SecretRef VaultSecretReference `json:"secretRef,omitempty,omitzero"`
}

// VaultSecretReference names a Secret in the namespace of each manager.
type VaultSecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// VaultNamespaces are the namespaces in list and those that selector matches.
// +kubebuilder:validation:MinProperties=1
type VaultNamespaces struct {
	// list is a list of namespaces. If not set, only selector allows namespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	List []string `json:"list,omitempty"`

	// selector matches namespaces by their labels. A selector without rules matches
	// all namespaces. If not set, only list allows namespaces.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novastarvaultidentities,scope=Cluster,categories=cluster-api,shortName=novasvid
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Server",type="string",JSONPath=".spec.server",description="Server"
// +kubebuilder:printcolumn:name="Method",type="string",JSONPath=".spec.auth.method",description="How the managers sign in"
// +kubebuilder:printcolumn:name="Namespaces",type="string",JSONPath=".spec.allowedNamespaces.list",description="Namespaces in the list that may use it",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaStarVaultIdentity is a StarVault that signs the certificates of clusters of
// several namespaces.
type NovaStarVaultIdentity struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaStarVaultIdentitySpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaStarVaultIdentityList is a list of NovaStarVaultIdentities.
type NovaStarVaultIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaStarVaultIdentity `json:"items"`
}

// GetMountPath returns the path of the PKI engines of all clusters.
func (s *NovaStarVaultIdentitySpec) GetMountPath() string {
	if s.MountPath == "" {
		return "nova"
	}
	return s.MountPath
}

// GetNodesAuthPath returns the path of the auth method of nodes.
func (s *NovaStarVaultIdentitySpec) GetNodesAuthPath() string {
	if s.NodesAuthPath == "" {
		return "nova-nodes"
	}
	return s.NodesAuthPath
}
