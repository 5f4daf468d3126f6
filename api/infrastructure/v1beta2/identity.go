package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SecretIdentityKind is the kind of an identity that is a Secret in the
// cluster's namespace.
const SecretIdentityKind = "Secret"

// IdentitySpec holds credentials for one hypervisor that clusters of several
// namespaces may use. The Secret is in the namespace of the manager, so users
// of a cluster use the credentials and cannot read them. Server and trust are
// part of the identity: a cluster cannot send the credentials elsewhere.
type IdentitySpec struct {
	// server is the host name or address of the vCenter or engine, with a port if it
	// is not 443, without scheme and path. The credentials are sent to no other
	// server. A change replaces no machines.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[][0-9A-Za-z._:-]+$')",message="server is a host name or address with an optional port, without scheme, path or credentials"
	Server string `json:"server,omitempty"`

	// tls defines how the server's certificate is verified. It is always verified. A
	// change replaces no machines. If not set, the CAs of the system are used. The CA
	// of an engine is not among them.
	// +optional
	TLS Trust `json:"tls,omitempty,omitzero"`

	// credentialsSecretRef names the Secret in the manager's namespace that has the
	// keys username and password. A change replaces no machines.
	// +required
	CredentialsSecretRef IdentitySecretReference `json:"credentialsSecretRef,omitempty,omitzero"`

	// allowedNamespaces are the namespaces whose clusters may use the identity. A
	// change replaces nothing; existing VMs stay unchanged. Clusters of a namespace
	// that is removed have no credentials, so their VMs cannot be deleted. If not set,
	// no cluster may use it.
	// +optional
	AllowedNamespaces AllowedNamespaces `json:"allowedNamespaces,omitempty,omitzero"`
}

// IdentitySecretReference names a Secret in the manager's namespace.
type IdentitySecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// Trust defines how a server's certificate is verified.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.caBundle) || !has(self.thumbprint)",message="only one of caBundle and thumbprint can be set"
type Trust struct {
	// caBundle is a PEM bundle of CAs that replaces the CAs of the system. An engine
	// serves its own at /ovirt-engine/services/pki-resource. If not set, the CAs of
	// the system are used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="caBundle must hold at least one PEM certificate"
	CABundle string `json:"caBundle,omitempty"`

	// thumbprint is the SHA-256 of the server's certificate: 32 hexadecimal
	// bytes separated by colons. Only that certificate is trusted. If not set,
	// no certificate is pinned.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31}$')",message="thumbprint must be the SHA-256 of the certificate, 32 bytes as in AB:CD:EF: see openssl x509 -noout -sha256 -fingerprint"
	Thumbprint string `json:"thumbprint,omitempty"`
}

// AllowedNamespaces are the namespaces in list and those that selector matches.
// +kubebuilder:validation:MinProperties=1
type AllowedNamespaces struct {
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
