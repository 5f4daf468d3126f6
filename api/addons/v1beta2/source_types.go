package v1beta2

// Source is a source of modules: a Flux object that exists, or one that the set creates
// in the namespace of each Cluster.
// +kubebuilder:validation:XValidation:rule="[has(self.ref), has(self.git), has(self.oci), has(self.helm)].exists_one(x, x)",message="set exactly one of ref, git, oci and helm"
type Source struct {
	// name is the name that modules refer to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// ref names a Flux source that exists. Exactly one kind of source must be set.
	// +optional
	Ref SourceReference `json:"ref,omitempty,omitzero"`

	// git is a Git repository. Exactly one kind of source must be set.
	// +optional
	Git GitSource `json:"git,omitempty,omitzero"`

	// oci is an artifact in an OCI registry. Exactly one kind of source must be set.
	// +optional
	OCI OCISource `json:"oci,omitempty,omitzero"`

	// helm is a repository of Helm charts. Exactly one kind of source must be set.
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

// SourceReference names a Flux source.
type SourceReference struct {
	// kind is GitRepository, OCIRepository, HelmRepository or Bucket.
	// +required
	Kind SourceKind `json:"kind,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the object. Flux rejects another namespace than that
	// of the Cluster if it runs with --no-cross-namespace-refs. Defaults to the namespace
	// of the Cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// Access configures the connection to a source.
type Access struct {
	// secretRef names a Secret with credentials in the format of Flux, in the namespace of
	// the Cluster. For a URL that begins with oci:// its type is
	// kubernetes.io/dockerconfigjson. If not set, no credentials are sent.
	// +optional
	SecretRef LocalReference `json:"secretRef,omitempty,omitzero"`

	// certSecretRef names a Secret with the key ca.crt, and tls.crt and tls.key for a
	// client certificate. For a Git repository these keys are in the Secret of secretRef.
	// If not set, the CA certificates of the system apply.
	// +optional
	CertSecretRef LocalReference `json:"certSecretRef,omitempty,omitzero"`

	// intervalSeconds is the interval at which the source is checked. Defaults to 600.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
}

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// GitSource is a Git repository.
type GitSource struct {
	Access `json:",inline"`

	// url is the URL, with http, https or ssh.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(http|https|ssh)://')",message="url must begin with http://, https:// or ssh://"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^https?://[^/]*@')",message="url must not contain credentials: use secretRef"
	URL string `json:"url,omitempty"`
}

// OCISource is an artifact in an OCI registry.
type OCISource struct {
	Access `json:",inline"`

	// url is the URL without a tag.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('oci://')",message="url must begin with oci://"
	URL string `json:"url,omitempty"`

	// insecure uses plain HTTP. Defaults to false.
	// +optional
	Insecure *bool `json:"insecure,omitempty"`
}

// HelmSource is a repository of Helm charts.
type HelmSource struct {
	Access `json:",inline"`

	// url is the URL, with http, https or oci.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(http|https|oci)://')",message="url must begin with http://, https:// or oci://"
	URL string `json:"url,omitempty"`

	// insecure uses plain HTTP for an oci registry. Defaults to false.
	// +optional
	Insecure *bool `json:"insecure,omitempty"`
}

// Release is a revision of a Git or OCI source. Changing it is an upgrade.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="[has(self.tag), has(self.semver), has(self.branch), has(self.commit), has(self.digest)].exists_one(x, x)",message="set exactly one of tag, semver, branch, commit and digest"
type Release struct {
	// tag is a tag. Exactly one field must be set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self != 'latest'",message="the tag latest moves without a change of the set, past spec.rollout: set the tag of a version, or a commit or digest"
	Tag string `json:"tag,omitempty"`

	// semver is a range of versions. The newest tag in it is used, so that upgrades are
	// automatic and bypass spec.rollout. Exactly one field must be set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Semver string `json:"semver,omitempty"`

	// branch is a branch of a Git repository. Commits are used at once and bypass
	// spec.rollout. Exactly one field must be set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Branch string `json:"branch,omitempty"`

	// commit is a commit of a Git repository. Exactly one field must be set.
	// +optional
	// +kubebuilder:validation:MinLength=7
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]+$`
	Commit string `json:"commit,omitempty"`

	// digest is the digest of an OCI artifact. Exactly one field must be set.
	// +optional
	// +kubebuilder:validation:MinLength=71
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`
}
