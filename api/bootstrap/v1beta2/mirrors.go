package v1beta2

// Keys of the Secrets that hold credentials.
const (
	// LoginUsernameKey and LoginPasswordKey hold the user name and the password.
	LoginUsernameKey = "username"
	LoginPasswordKey = "password"
	// LoginTokenKey holds a token that is used instead of name and password.
	LoginTokenKey = "token"
)

// SecretReference names a Secret in the same namespace.
type SecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ProxySpec sets the HTTP proxy of the nodes. containerd, the kubelet, apt and
// login shells of root use it. The Proxy object in the workload cluster has the
// same settings, for modules.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.httpProxy) || has(self.httpsProxy) || !has(self.credentialsSecretRef) && !has(self.noProxy)",message="credentialsSecretRef and noProxy need httpProxy or httpsProxy"
type ProxySpec struct {
	// httpProxy is the URL of the proxy for HTTP, without credentials. If not set,
	// HTTP uses no proxy.
	// +optional
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+/?$`
	HTTPProxy string `json:"httpProxy,omitempty"`

	// httpsProxy is the URL of the proxy for HTTPS, without credentials. If not
	// set, HTTPS uses no proxy.
	// +optional
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+/?$`
	HTTPSProxy string `json:"httpsProxy,omitempty"`

	// noProxy lists addresses, CIDRs and domains that are reached without the
	// proxy, in addition to the node itself, the networks of the cluster, its
	// endpoint and the domain of its Services. If not set, only these are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9.:*/_\[\]-]+$`
	NoProxy []string `json:"noProxy,omitempty"`

	// credentialsSecretRef names a Secret in the same namespace with the keys
	// username and password for the proxies. If not set, no credentials are sent.
	// +optional
	CredentialsSecretRef SecretReference `json:"credentialsSecretRef,omitempty,omitzero"`

	// trustedCAFrom is the Secret or ConfigMap with CA certificates in PEM that
	// nodes trust in addition to those of the image. If not set, none are added.
	// +optional
	TrustedCAFrom FileSource `json:"trustedCAFrom,omitempty,omitzero"`
}

// Used reports whether nodes use a proxy.
func (p *ProxySpec) Used() bool { return p.HTTPProxy != "" || p.HTTPSProxy != "" }

// RegistryMirror is a mirror of a registry.
type RegistryMirror struct {
	// registry is the host and port of the registry, such as docker.io. The
	// value * stands for all registries without a mirror of their own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\*|[A-Za-z0-9.-]+(:[0-9]+)?)$`
	Registry string `json:"registry,omitempty"`

	// endpoints are the URLs of the mirrors, in the order in which containerd
	// tries them. If a URL has a path, the images of the registry are below it.
	// containerd tries the registry itself last.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=8
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?$`
	Endpoints []string `json:"endpoints,omitempty"`
}

// PackageRepository is a package repository of apt.
type PackageRepository struct {
	// name is the name of the file in /etc/apt/sources.list.d.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// uri is the URI of the repository, without credentials.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`
	URI string `json:"uri,omitempty"`

	// suite is the suite, such as stable, or / for a flat repository.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._/-]+$`
	Suite string `json:"suite,omitempty"`

	// components are the components of the suite, such as main. If not set, the
	// repository is flat.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9._/-]+$`
	Components []string `json:"components,omitempty"`

	// key is the armored public key that the repository is signed with. If not
	// set, apt uses the keys of the image.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Key string `json:"key,omitempty"`
}

// NTPSpec sets the time servers of the nodes.
type NTPSpec struct {
	// servers are the names or addresses of time servers. They configure
	// systemd-timesyncd or chrony, depending on the image.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9.:-]+$`
	Servers []string `json:"servers,omitempty"`
}
