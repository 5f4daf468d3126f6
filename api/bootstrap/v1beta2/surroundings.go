package v1beta2

// Keys of the Secrets that hold logins.
const (
	// LoginUsernameKey and LoginPasswordKey hold a user's name and password.
	LoginUsernameKey = "username"
	LoginPasswordKey = "password"
	// LoginTokenKey holds an authorization token, instead of the other two.
	LoginTokenKey = "token"
)

// SecretReference is a Secret in the same namespace.
type SecretReference struct {
	// name is the Secret's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ProxySpec is how nodes reach the outside. containerd, the kubelet, apt and
// the shells of root use it, and the tenant's Proxy object tells modules of it.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.httpProxy) || has(self.httpsProxy) || !has(self.credentials) && !has(self.noProxy)",message="credentials and noProxy need httpProxy or httpsProxy"
type ProxySpec struct {
	// httpProxy is the URL of the proxy for http, without a login. Empty
	// means none.
	// +optional
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+/?$`
	HTTPProxy string `json:"httpProxy,omitempty"`

	// httpsProxy is the URL of the proxy for https, without a login. Empty
	// means none.
	// +optional
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+/?$`
	HTTPSProxy string `json:"httpsProxy,omitempty"`

	// noProxy are addresses, ranges and domains that are reached directly.
	// The node itself, the cluster's ranges, its endpoint and the domain of
	// its services are among them without being said. Empty adds none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9.:*/_\[\]-]+$`
	NoProxy []string `json:"noProxy,omitempty"`

	// credentials is a Secret with username and password for the proxies.
	// Empty means that they ask for none.
	// +optional
	Credentials SecretReference `json:"credentials,omitempty,omitzero"`

	// trustedCA are certificates, in PEM, of authorities that nodes trust: in
	// the system's store, and so in containerd. Empty adds none.
	// +optional
	TrustedCA FileSource `json:"trustedCA,omitempty,omitzero"`
}

// Used reports whether nodes go through a proxy at all.
func (p *ProxySpec) Used() bool { return p.HTTPProxy != "" || p.HTTPSProxy != "" }

// UniverseSpec says where a closed network has its images and packages.
// +kubebuilder:validation:MinProperties=1
type UniverseSpec struct {
	// imageRepository is the registry and path of Kubernetes' images. Empty
	// means registry.k8s.io. platform.imageRepository wins over it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._/-]+)?$`
	ImageRepository string `json:"imageRepository,omitempty"`

	// registryMirrors are asked in place of registries. Empty asks the
	// registries themselves.
	// +optional
	// +listType=map
	// +listMapKey=registry
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	RegistryMirrors []RegistryMirror `json:"registryMirrors,omitempty"`

	// packageRepositories are apt's. They are added to those of the image.
	// Empty adds none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	PackageRepositories []PackageRepository `json:"packageRepositories,omitempty"`

	// credentials is a Secret with token, or username and password, for the
	// mirrors, the registry of imageRepository and the package repositories.
	// Empty means that they ask for none.
	// +optional
	Credentials SecretReference `json:"credentials,omitempty,omitzero"`

	// trustedCA are certificates, in PEM, of the authorities that the mirrors
	// and repositories have theirs from. They go to the system's store, too.
	// Empty adds none.
	// +optional
	TrustedCA FileSource `json:"trustedCA,omitempty,omitzero"`
}

// RegistryMirror is asked in place of a registry.
type RegistryMirror struct {
	// registry is the registry's host and port, for instance docker.io, or *
	// for all that have no mirror of their own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\*|[A-Za-z0-9.-]+(:[0-9]+)?)$`
	Registry string `json:"registry,omitempty"`

	// endpoints are URLs, asked in order. One with a path has the registry's
	// images below it. The registry itself is asked last.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=8
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?$`
	Endpoints []string `json:"endpoints,omitempty"`
}

// PackageRepository is a repository of packages for apt.
type PackageRepository struct {
	// name is the name of the repository's file.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// uri is the repository's address, without a login.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`
	URI string `json:"uri,omitempty"`

	// suite is the distribution, for instance stable, or / for a flat repository.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._/-]+$`
	Suite string `json:"suite,omitempty"`

	// components are the suite's parts. Empty is for a flat repository.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9._/-]+$`
	Components []string `json:"components,omitempty"`

	// key is the armoured public key that the repository is signed with.
	// Empty takes the keys that the image has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Key string `json:"key,omitempty"`
}

// NTPSpec says which clocks the nodes follow.
type NTPSpec struct {
	// servers are names or addresses, for systemd-timesyncd or chrony,
	// whichever the image has.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9.:-]+$`
	Servers []string `json:"servers,omitempty"`
}
