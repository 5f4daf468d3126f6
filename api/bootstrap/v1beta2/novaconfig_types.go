package v1beta2

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// DataSecretAvailableCondition is true once the machine's user data stands in
// a Secret. The Ready condition of a NovaConfig repeats it.
const DataSecretAvailableCondition = "DataSecretAvailable"

// ModeAnnotation stands on the Secret with bootstrap data and says how the
// machine that boots with it becomes a node: Init, JoinControlPlane or
// JoinWorker.
const ModeAnnotation = "nova.bootstrap.cluster.x-k8s.io/mode"

// CertifiedKeyAnnotation stands on a NovaConfig once a certificate was approved
// for its machine's kubelet and holds the hash of the key: sha256: and the
// hexadecimal SHA-256 of its DER-encoded SubjectPublicKeyInfo. No other key of
// the machine is approved.
const CertifiedKeyAnnotation = "nova.bootstrap.cluster.x-k8s.io/certified-key"

// JoinByAnnotation is set on the NovaConfig of a control plane machine and holds
// the time until which the machine's credential to join is good (RFC 3339). Its
// control plane counts on the machine until then. The credential is renewed until
// the machine's infrastructure is ready.
const JoinByAnnotation = "nova.bootstrap.cluster.x-k8s.io/join-by"

// JoinBound is how long a machine tries to initialize or to join its control plane
// after it started, unless platform.joinTimeoutSeconds is set.
const JoinBound = time.Hour

const (
	// DataSecretAvailableReason: the user data is there.
	DataSecretAvailableReason = clusterv1.AvailableReason
	// WaitingForInfrastructureReason: the cluster's infrastructure is not provisioned yet.
	WaitingForInfrastructureReason = clusterv1.WaitingForClusterInfrastructureReadyReason
	// WaitingForEndpointReason: the Cluster names no control plane endpoint yet.
	WaitingForEndpointReason = "WaitingForControlPlaneEndpoint"
	// WaitingForCertificatesReason: the cluster's certificates do not exist yet.
	WaitingForCertificatesReason = "WaitingForClusterCertificates"
	// WaitingForControlPlaneReason: the control plane has not said yet which machine initialises the cluster.
	WaitingForControlPlaneReason = "WaitingForControlPlane"
	// WaitingForAPIServerReason: the cluster's authority has no key in the
	// management cluster, and its API server, which makes a bootstrap token,
	// does not answer yet.
	WaitingForAPIServerReason = "WaitingForAPIServer"
	// SourceNotFoundReason: a Secret or ConfigMap that a file names lacks the content.
	SourceNotFoundReason = "SourceNotFound"
	// RenderingFailedReason: the user data cannot be rendered from the spec.
	RenderingFailedReason = "RenderingFailed"
	// MachinePoolNotSupportedReason: a MachinePool owns the NovaConfig.
	MachinePoolNotSupportedReason = "MachinePoolNotSupported"
	// InternalErrorReason: something else failed.
	InternalErrorReason = clusterv1.InternalErrorReason
)

// NodeRole is what a node is for.
// +kubebuilder:validation:Enum=control-plane;infra;ingress;worker
type NodeRole string

// Roles of nodes. A role sets the label node-role.kubernetes.io/<role>;
// control-plane and infra also taint the node NoSchedule with the same key.
const (
	NodeRoleControlPlane NodeRole = "control-plane"
	NodeRoleInfra        NodeRole = "infra"
	NodeRoleIngress      NodeRole = "ingress"
	NodeRoleWorker       NodeRole = "worker"
)

// Format is the language of the first-boot document.
// +kubebuilder:validation:Enum=cloud-config;ignition
type Format string

// Formats of the first-boot document, as Cluster API names them.
const (
	// FormatCloudConfig is for images with cloud-init.
	FormatCloudConfig Format = "cloud-config"
	// FormatIgnition is for images with Ignition, specification 3.3 or newer.
	FormatIgnition Format = "ignition"
)

// NovaConfigSpec is what a node is told on its first boot.
type NovaConfigSpec struct {
	// format is the language of the document: cloud-config or ignition,
	// whichever the image understands. Empty means cloud-config.
	// +optional
	Format Format `json:"format,omitempty"`

	// roles are what the node is for. Empty means control-plane on a control
	// plane machine and worker elsewhere.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Roles []NodeRole `json:"roles,omitempty"`

	// taints are what the node registers with beside the taints of its roles.
	// Empty adds none. Later changes are for the Machine.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Taints []Taint `json:"taints,omitempty"`

	// platform holds cluster-wide settings. Empty takes those of the
	// cluster's NovaControlPlane; say it only with another control-plane
	// provider.
	// +optional
	Platform PlatformSpec `json:"platform,omitempty,omitzero"`

	// kubelet adds to the kubelet's settings. Empty adds nothing.
	// +optional
	Kubelet KubeletSpec `json:"kubelet,omitempty,omitzero"`

	// kubeadm adds to what kubeadm is told. Empty adds nothing.
	// +optional
	Kubeadm KubeadmSpec `json:"kubeadm,omitempty,omitzero"`

	// files are written before any command runs. Empty writes none.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	Files []File `json:"files,omitempty"`

	// users can log in to the node. Empty adds none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Users []User `json:"users,omitempty"`

	// disks are whole disks that the node uses, for instance one for etcd.
	// Empty uses none but the image's.
	// +optional
	// +listType=map
	// +listMapKey=device
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Disks []Disk `json:"disks,omitempty"`

	// swap makes a swap file, and has the kubelet start with it. Empty makes
	// none.
	// +optional
	Swap SwapSpec `json:"swap,omitempty,omitzero"`

	// kernel sets the kernel up. Empty leaves it as the image has it.
	// +optional
	Kernel KernelSpec `json:"kernel,omitempty,omitzero"`

	// containerd adds to containerd's configuration. Empty adds nothing.
	// +optional
	Containerd ContainerdSpec `json:"containerd,omitempty,omitzero"`

	// preKubeadmCommands are shell commands that run before kubeadm; if one
	// fails the node does not join. Empty runs none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=10240
	PreKubeadmCommands []string `json:"preKubeadmCommands,omitempty"`

	// postKubeadmCommands are shell commands that run after kubeadm. Empty
	// runs none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=10240
	PostKubeadmCommands []string `json:"postKubeadmCommands,omitempty"`
}

// GetFormat returns the format or its default.
func (s *NovaConfigSpec) GetFormat() Format {
	if s.Format == "" {
		return FormatCloudConfig
	}
	return s.Format
}

// KubeletSpec adds to the kubelet's settings.
// +kubebuilder:validation:MinProperties=1
type KubeletSpec struct {
	// extraArgs are command line arguments of the kubelet. They win over the
	// provider's own; node-labels are added to the roles' labels. Empty adds
	// none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=value
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	ExtraArgs []Arg `json:"extraArgs,omitempty"`
}

// KubeadmSpec adds to what kubeadm is told.
// +kubebuilder:validation:MinProperties=1
type KubeadmSpec struct {
	// ignorePreflightErrors are preflight checks whose failure is only
	// warned of, or all. Empty ignores none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`

	// imagePullPolicy is how kubeadm pulls images: Always, IfNotPresent or
	// Never. Empty means IfNotPresent.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`

	// configPatches are merged into the documents that kubeadm is given.
	// Empty merges none.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	ConfigPatches []ConfigPatch `json:"configPatches,omitempty"`

	// patches are what kubeadm itself applies to the components it deploys,
	// see "kubeadm init --patches". Empty applies none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Patches []ComponentPatch `json:"patches,omitempty"`

	// verbosity is the level of kubeadm's log. Empty means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Verbosity *int32 `json:"verbosity,omitempty"`
}

// ConfigPatch is merged into one of kubeadm's documents.
type ConfigPatch struct {
	// kind is the document's kind.
	// +required
	// +kubebuilder:validation:Enum=InitConfiguration;ClusterConfiguration;JoinConfiguration;KubeletConfiguration;KubeProxyConfiguration
	Kind string `json:"kind,omitempty"`

	// patch is a JSON merge patch (RFC 7386), written as YAML or JSON.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Patch string `json:"patch,omitempty"`
}

// ComponentPatch is a patch that kubeadm applies to a component.
type ComponentPatch struct {
	// target is the component.
	// +required
	// +kubebuilder:validation:Enum=kube-apiserver;kube-controller-manager;kube-scheduler;etcd;kubeletconfiguration;corednsdeployment
	Target string `json:"target,omitempty"`

	// type is strategic, merge or json. Empty means strategic.
	// +optional
	// +kubebuilder:validation:Enum=strategic;merge;json
	Type string `json:"type,omitempty"`

	// patch is the patch, written as YAML or JSON.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Patch string `json:"patch,omitempty"`
}

// ContentFormat is how a file's content is read.
// +kubebuilder:validation:Enum=Plain;Template
type ContentFormat string

// Formats of a file's content.
const (
	ContentFormatPlain    ContentFormat = "Plain"
	ContentFormatTemplate ContentFormat = "Template"
)

// ContentEncoding is how a file's content is written down.
// +kubebuilder:validation:Enum=Base64;Gzip;GzipBase64
type ContentEncoding string

// Encodings of a file's content.
const (
	// ContentEncodingBase64 is base64.
	ContentEncodingBase64 ContentEncoding = "Base64"
	// ContentEncodingGzip is compressed content, which only a Secret or a
	// ConfigMap can hold.
	ContentEncodingGzip ContentEncoding = "Gzip"
	// ContentEncodingGzipBase64 is compressed content in base64.
	ContentEncodingGzipBase64 ContentEncoding = "GzipBase64"
)

// File is a file on the node.
// +kubebuilder:validation:XValidation:rule="!has(self.encoding) || !has(self.contentFormat) || self.contentFormat == 'Plain'",message="a template cannot be encoded"
// +kubebuilder:validation:XValidation:rule="has(self.content) != has(self.contentFrom)",message="exactly one of content and contentFrom must be set"
type File struct {
	// path is the absolute path.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must be absolute, such as /etc/motd"
	Path string `json:"path,omitempty"`

	// owner is user:group. Empty means root:root.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Owner string `json:"owner,omitempty"`

	// permissions are the octal mode, for instance "0640". Empty means "0640".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^0?[0-7]{3,4}$')",message="permissions must be an octal mode such as 0640"
	Permissions string `json:"permissions,omitempty"`

	// append adds to the file instead of replacing it. Empty means false.
	// +optional
	Append *bool `json:"append,omitempty"`

	// content is the content. Empty takes contentFrom.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	Content string `json:"content,omitempty"`

	// contentFrom names a Secret or ConfigMap in the same namespace. Empty
	// takes content.
	// +optional
	ContentFrom FileSource `json:"contentFrom,omitempty,omitzero"`

	// contentFormat is Plain, or Template for a Go text/template that may use
	// .Cluster.Name, .Cluster.Namespace, .Machine.Name, .Version, .Endpoint.Host,
	// .Endpoint.Port and .Roles. Empty means Plain.
	// +optional
	ContentFormat ContentFormat `json:"contentFormat,omitempty"`

	// encoding is how the content is written down: Base64, Gzip or
	// GzipBase64. The node unpacks it. Empty means as it is.
	// +optional
	Encoding ContentEncoding `json:"encoding,omitempty"`
}

// FileSource is where a file's content comes from.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.secret) != has(self.configMap)",message="exactly one of secret and configMap must be set"
type FileSource struct {
	// secret is a key of a Secret. Empty takes configMap.
	// +optional
	Secret KeyReference `json:"secret,omitempty,omitzero"`

	// configMap is a key of a ConfigMap. Empty takes secret.
	// +optional
	ConfigMap KeyReference `json:"configMap,omitempty,omitzero"`
}

// KeyReference is a key of a Secret or ConfigMap in the same namespace.
type KeyReference struct {
	// name is the object's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// key is the key in its data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// NovaConfigStatus is what is known of the user data.
type NovaConfigStatus struct {
	// conditions are Ready, DataSecretAvailable and Paused. Empty until the
	// first reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization tells Cluster API that the user data is there. Empty
	// until then.
	// +optional
	Initialization NovaConfigInitializationStatus `json:"initialization,omitempty,omitzero"`

	// dataSecretName is the Secret that holds the user data. Empty until it
	// is there.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DataSecretName string `json:"dataSecretName,omitempty"`

	// observedGeneration is the generation that was last reconciled.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// NovaConfigInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type NovaConfigInitializationStatus struct {
	// dataSecretCreated is true once the user data stands in a Secret. Empty
	// means false.
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaconfigs,scope=Namespaced,categories=cluster-api,shortName=novacfg
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the user data is there"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='DataSecretAvailable')].reason",description="Why it is there or not"
// +kubebuilder:printcolumn:name="Roles",type="string",JSONPath=".spec.roles",description="Roles of the node",priority=10
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".status.dataSecretName",description="Secret with the user data",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaConfig is the first-boot document of one machine.
type NovaConfig struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Empty makes a plain node.
	// +optional
	Spec NovaConfigSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Empty until the first reconcile.
	// +optional
	Status NovaConfigStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaConfig) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaConfig) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// +kubebuilder:object:root=true

// NovaConfigList is a list of NovaConfigs.
type NovaConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaConfig `json:"items"`
}

// NovaConfigTemplateSpec holds the template.
type NovaConfigTemplateSpec struct {
	// template is what a NovaConfig is made from.
	// +required
	Template NovaConfigTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaConfigTemplateResource is the NovaConfig to make.
// +kubebuilder:validation:MinProperties=1
type NovaConfigTemplateResource struct {
	// metadata holds labels and annotations for the NovaConfig. Empty adds none.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the NovaConfig's spec. Empty makes a plain node.
	// +optional
	Spec NovaConfigSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaconfigtemplates,scope=Namespaced,categories=cluster-api,shortName=novacfgt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Roles",type="string",JSONPath=".spec.template.spec.roles",description="Roles of nodes"
// +kubebuilder:printcolumn:name="Format",type="string",JSONPath=".spec.template.spec.format",description="What images boot by, cloud-config if empty",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaConfigTemplate is a template for NovaConfigs.
type NovaConfigTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaConfigTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaConfigTemplateList is a list of NovaConfigTemplates.
type NovaConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaConfigTemplate `json:"items"`
}
