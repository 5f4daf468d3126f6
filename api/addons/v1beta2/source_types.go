package v1beta2

// Source is where modules come from: an object of Flux that exists, or one
// that the set writes into the namespace of each Cluster.
// +kubebuilder:validation:XValidation:rule="[has(self.ref), has(self.git), has(self.oci), has(self.helm)].exists_one(x, x)",message="set exactly one of ref, git, oci and helm"
type Source struct {
	// name is what modules call the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// ref names a source that exists. Empty means that the set writes one.
	// +optional
	Ref SourceReference `json:"ref,omitempty,omitzero"`

	// git is a Git repository. Empty means another kind.
	// +optional
	Git GitSource `json:"git,omitempty,omitzero"`

	// oci is an artifact in an OCI registry. Empty means another kind.
	// +optional
	OCI OCISource `json:"oci,omitempty,omitzero"`

	// helm is a repository of Helm charts. Empty means another kind.
	// +optional
	Helm HelmSource `json:"helm,omitempty,omitzero"`
}

// SourceKind is a kind of source.
// +kubebuilder:validation:Enum=GitRepository;OCIRepository;HelmRepository;Bucket
type SourceKind string

// Kinds of sources.
const (
	GitRepository  SourceKind = "GitRepository"
	OCIRepository  SourceKind = "OCIRepository"
	HelmRepository SourceKind = "HelmRepository"
	Bucket         SourceKind = "Bucket"
)

// SourceReference names a source of Flux.
type SourceReference struct {
	// kind is GitRepository, OCIRepository, HelmRepository or Bucket.
	// +required
	Kind SourceKind `json:"kind,omitempty"`

	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// namespace is its namespace. Empty means the Cluster's. Flux refuses
	// another one when it runs with --no-cross-namespace-refs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// Access is how a source is reached.
type Access struct {
	// secretRef names a Secret with the credentials, in the namespace of the
	// Cluster, in the form that Flux asks for. Empty means none are needed.
	// +optional
	SecretRef LocalReference `json:"secretRef,omitempty,omitzero"`

	// certSecretRef names a Secret with the key ca.crt, and tls.crt and
	// tls.key when the server asks for a certificate. Empty trusts the
	// system's authorities. A Git repository takes them from secretRef.
	// +optional
	CertSecretRef LocalReference `json:"certSecretRef,omitempty,omitzero"`

	// intervalSeconds is how often the source is looked at, in seconds. Empty means
	// 600.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
}

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// GitSource is a Git repository.
type GitSource struct {
	Access `json:",inline"`

	// url is its address, http, https or ssh.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(http|https|ssh)://')",message="url must begin with http://, https:// or ssh://"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^https?://[^/]*@')",message="credentials belong into the Secret that secretRef names"
	URL string `json:"url,omitempty"`
}

// OCISource is an artifact in an OCI registry.
type OCISource struct {
	Access `json:",inline"`

	// url is its address without a tag.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('oci://')",message="url must begin with oci://"
	URL string `json:"url,omitempty"`

	// insecure speaks plain HTTP with the registry. Empty means false.
	// +optional
	Insecure *bool `json:"insecure,omitempty"`
}

// HelmSource is a repository of Helm charts.
type HelmSource struct {
	Access `json:",inline"`

	// url is its address, http, https or oci.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(http|https|oci)://')",message="url must begin with http://, https:// or oci://"
	URL string `json:"url,omitempty"`

	// insecure speaks plain HTTP with an oci registry. Empty means false.
	// +optional
	Insecure *bool `json:"insecure,omitempty"`
}

// Release is what of a Git or OCI source is taken. Switching it is the
// upgrade.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="[has(self.tag), has(self.semver), has(self.branch), has(self.commit), has(self.digest)].exists_one(x, x)",message="set exactly one of tag, semver, branch, commit and digest"
type Release struct {
	// tag is a tag. Empty means another choice.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Tag string `json:"tag,omitempty"`

	// semver is a range of versions; the newest tag in it is taken, so that
	// upgrades come by themselves and past spec.rollout. Empty means another
	// choice.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Semver string `json:"semver,omitempty"`

	// branch is a branch of a Git repository; what is pushed to it is taken at
	// once, past spec.rollout. Empty means another choice.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Branch string `json:"branch,omitempty"`

	// commit is a commit of a Git repository. Empty means another choice.
	// +optional
	// +kubebuilder:validation:MinLength=7
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]+$`
	Commit string `json:"commit,omitempty"`

	// digest is the digest of an OCI artifact. Empty means another choice.
	// +optional
	// +kubebuilder:validation:MinLength=71
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`
}
