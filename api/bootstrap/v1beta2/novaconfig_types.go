package v1beta2

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ModeAnnotation is set on the Secret with bootstrap data and holds how the
// machine becomes a node: Init, JoinControlPlane or JoinWorker.
const ModeAnnotation = "nova.bootstrap.cluster.x-k8s.io/mode"

// CertifiedKeyAnnotation is set on a NovaConfig when a certificate was approved
// for the kubelet of its machine. It holds the hash of the key: sha256: and the
// hexadecimal SHA-256 of its DER-encoded SubjectPublicKeyInfo. No other key of
// the machine is approved.
const CertifiedKeyAnnotation = "nova.bootstrap.cluster.x-k8s.io/certified-key"

// JoinByAnnotation is set on the NovaConfig of a control plane machine and holds
// the time until which the machine's join credential is valid (RFC 3339). The
// control plane expects the machine to join until then. The credential is renewed
// until the machine's infrastructure is ready.
const JoinByAnnotation = "nova.bootstrap.cluster.x-k8s.io/join-by"

// RenewCertificatesAnnotation is set on the NovaConfig of a control plane machine
// that is changed in place because its certificates expire soon. It holds a time (RFC
// 3339): those that end before it are renewed.
const RenewCertificatesAnnotation = "nova.bootstrap.cluster.x-k8s.io/renew-certificates"

// GetRenewCertificates returns the time of RenewCertificatesAnnotation; zero if it is
// not set or not readable.
func (c *NovaConfig) GetRenewCertificates() time.Time {
	at, err := time.Parse(time.RFC3339, c.Annotations[RenewCertificatesAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// JoinBound is how long a machine tries to initialize or to join its control plane
// after it started, unless platform.joinTimeoutSeconds is set.
const JoinBound = time.Hour

// NovaConfig's Ready condition and corresponding reasons.
const (
	// ReadyCondition repeats DataSecretAvailable.
	ReadyCondition = clusterv1.ReadyCondition

	// ReadyReason: the Secret with the bootstrap data exists.
	//
	// Action: none.
	ReadyReason = clusterv1.ReadyReason
)

// NovaConfig's DataSecretAvailable condition and corresponding reasons.
const (
	// DataSecretAvailableCondition is true once the bootstrap data of the machine is
	// stored in a Secret. Ready depends on it.
	DataSecretAvailableCondition = "DataSecretAvailable"

	// DataSecretAvailableReason: the Secret with the bootstrap data exists.
	//
	// Action: none.
	DataSecretAvailableReason = clusterv1.AvailableReason

	// WaitingForInfrastructureReason: the infrastructure of the cluster is not provisioned
	// yet.
	//
	// Action: check the conditions of the infrastructure cluster.
	WaitingForInfrastructureReason = clusterv1.WaitingForClusterInfrastructureReadyReason

	// WaitingForEndpointReason: the Cluster has no control plane endpoint yet.
	//
	// Action: set spec.controlPlaneEndpoint of the infrastructure cluster.
	WaitingForEndpointReason = "WaitingForControlPlaneEndpoint"

	// WaitingForCertificatesReason: the control plane provider has not created the
	// certificates of the cluster yet.
	//
	// Action: check the condition CertificatesAvailable of the NovaControlPlane.
	WaitingForCertificatesReason = "WaitingForClusterCertificates"

	// WaitingForControlPlaneReason: the control plane has not selected the machine that
	// initializes the cluster yet.
	//
	// Action: wait. If the reason stays, check the conditions of the NovaControlPlane.
	WaitingForControlPlaneReason = "WaitingForControlPlane"

	// WaitingForAPIServerReason: the management cluster does not have the key of the
	// cluster's CA, so the API server must create a bootstrap token. It does not respond,
	// or the kubeconfig is rejected.
	//
	// Action: check the control plane of the other provider, and the Secret
	// `<cluster>-kubeconfig`; see docs/security.md#kubeconfigs.
	WaitingForAPIServerReason = "WaitingForAPIServer"

	// SourceNotFoundReason: a Secret or ConfigMap that a file or the platform settings
	// refer to does not exist, lacks the key, or is not allowed on machines.
	//
	// Action: create the object that the message names, or correct the reference.
	SourceNotFoundReason = "SourceNotFound"

	// RenderingFailedReason: the bootstrap data cannot be rendered from the spec: a
	// template is malformed, or the data is too long for the hypervisor.
	//
	// Action: fix the NovaConfigTemplate, or spec.config of the NovaControlPlane; the
	// message names the place.
	RenderingFailedReason = "RenderingFailed"

	// MachinePoolNotSupportedReason: a MachinePool owns the NovaConfig. Its machines would
	// share one join credential.
	//
	// Action: use a MachineDeployment.
	MachinePoolNotSupportedReason = "MachinePoolNotSupported"

	// OtherManagementClusterReason: another management cluster manages this cluster. No
	// bootstrap data is written.
	//
	// Action: after a move or a restore take over, with the command in the message; see
	// docs/day2.md#an-old-backup.
	OtherManagementClusterReason = "OtherManagementCluster"

	// InternalErrorReason: an unexpected error occurred.
	//
	// Action: check the log of nova-bootstrap.
	InternalErrorReason = clusterv1.InternalErrorReason
)

// NovaConfigTemplate's InPlaceUpdatable condition and corresponding reasons.
const (
	// InPlaceUpdatableCondition is true if the machines of a MachineDeployment that
	// moves to this template can be changed in place. It is set with rollout.inPlace
	// Prefer and Only, and while spec.paused of the MachineDeployment is true.
	InPlaceUpdatableCondition = "InPlaceUpdatable"

	// InPlaceUpdatableReason: all changed fields can be applied to running machines.
	//
	// Action: none.
	InPlaceUpdatableReason = "InPlaceUpdatable"

	// ReplacementNeededReason: the message lists fields whose change needs other
	// machines. With rollout.inPlace Only no machine is changed or replaced; otherwise
	// machines are replaced, once spec.paused of the MachineDeployment is false.
	//
	// Action: revert these fields if machines should stay, or set Prefer in place of Only.
	ReplacementNeededReason = "ReplacementNeeded"
)

// NodeRole is a role of a node.
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

// Format is the format of the bootstrap data.
// +kubebuilder:validation:Enum=cloud-config;ignition
type Format string

// Formats of the bootstrap data, as Cluster API names them.
const (
	// FormatCloudConfig is for images with cloud-init.
	FormatCloudConfig Format = "cloud-config"
	// FormatIgnition is for images with Ignition, specification 3.3 or newer.
	FormatIgnition Format = "ignition"
)

// NovaConfigSpec configures one machine.
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.platform.pki)",fieldPath=".platform",message="platform.pki can be set in a NovaControlPlane only"
type NovaConfigSpec struct {
	NodeConfigSpec `json:",inline"`

	// platform holds the settings of the whole workload cluster. Set it only with a
	// control plane provider other than this one. If not set, the settings of the
	// cluster's NovaControlPlane apply.
	// +optional
	Platform PlatformSpec `json:"platform,omitempty,omitzero"`

	// rollout defines how a change of the other fields reaches existing machines. If not
	// set, machines are replaced.
	// +optional
	Rollout WorkerRolloutSpec `json:"rollout,omitempty,omitzero"`
}

// InPlaceMode defines whether existing machines are changed in place.
// +kubebuilder:validation:Enum=Never;Prefer;Only
type InPlaceMode string

// Modes of updates in place.
const (
	// InPlaceNever replaces machines.
	InPlaceNever InPlaceMode = "Never"
	// InPlacePrefer changes machines in place if all changed fields allow it, and
	// replaces them otherwise.
	InPlacePrefer InPlaceMode = "Prefer"
	// InPlaceOnly never replaces a machine for a change.
	InPlaceOnly InPlaceMode = "Only"
)

// WorkerRolloutSpec defines how a change reaches existing machines.
// +kubebuilder:validation:MinProperties=1
type WorkerRolloutSpec struct {
	// inPlace defines whether a MachineDeployment that moves to another
	// NovaConfigTemplate changes its machines in place. Never: it replaces them. Prefer:
	// it changes them if all changed fields allow that, and replaces them otherwise.
	// Only: it changes them, or stops if a field needs a replacement. Cluster API must
	// have the feature gates RuntimeSDK and InPlaceUpdates and the ExtensionConfig of
	// nova-bootstrap; without them machines are replaced. Machines that were created with
	// Never cannot be changed: Prefer replaces them once, Only stops. Defaults to Never.
	// +optional
	InPlace InPlaceMode `json:"inPlace,omitempty"`
}

// GetInPlace returns the mode or its default.
func (s *WorkerRolloutSpec) GetInPlace() InPlaceMode { return cmp.Or(s.InPlace, InPlaceNever) }

// NodeConfigSpec configures a node. It is read once, when the bootstrap data of a
// machine is rendered. In a NovaControlPlane, a change of any field replaces control
// plane machines. In a NovaConfigTemplate, a change replaces no machine: new
// machines use it. In a ClusterClass, a change of the template or of a variable
// replaces the workers that use it.
// +kubebuilder:validation:XValidation:rule="!has(self.bootCommands) || !has(self.format) || self.format == 'cloud-config'",message="bootCommands needs format cloud-config: Ignition has no commands"
type NodeConfigSpec struct {
	// format is the format of the bootstrap data: cloud-config or ignition. The image
	// must support it. A change replaces machines. Defaults to cloud-config.
	// +optional
	Format Format `json:"format,omitempty"`

	// roles are the roles of the node. A change replaces machines. Defaults to
	// control-plane for a control plane machine and to worker for others.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Roles []NodeRole `json:"roles,omitempty"`

	// taints are the taints that the node registers with, in addition to those of
	// its roles. Taints that change later are set in the Machine. A change replaces
	// machines. If not set, the node has the taints of its roles.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Taints []Taint `json:"taints,omitempty"`

	// kubelet configures the kubelet. A change replaces machines. If not set, the
	// defaults of kubeadm apply.
	// +optional
	Kubelet KubeletSpec `json:"kubelet,omitempty,omitzero"`

	// kubeadm configures kubeadm on this machine. A change replaces machines. If not
	// set, the defaults of kubeadm apply.
	// +optional
	Kubeadm KubeadmSpec `json:"kubeadm,omitempty,omitzero"`

	// files are files that are written before preKubeadmCommands run, and after disks
	// and mounts are mounted. A change replaces machines. If not set, none are
	// written.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	Files []File `json:"files,omitempty"`

	// users are users that can log in to the node. A change replaces machines. If not
	// set, the node has the users of its image.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Users []User `json:"users,omitempty"`

	// nodeAddress selects the address of the node on machines with several network
	// interfaces. A change replaces machines. If not set, it is the first address of the
	// interface with the default route.
	// +optional
	NodeAddress NodeAddressSpec `json:"nodeAddress,omitempty,omitzero"`

	// partitions are partition tables that are created on empty disks, before disks are
	// mounted. A change replaces machines. If not set, no disk is partitioned.
	// +optional
	// +listType=map
	// +listMapKey=device
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Partitions []PartitionTable `json:"partitions,omitempty"`

	// disks are additional disks, each with one file system, for instance for etcd. A
	// change replaces machines. If not set, the node uses the disks of its image.
	// +optional
	// +listType=map
	// +listMapKey=device
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Disks []Disk `json:"disks,omitempty"`

	// mounts are file systems that are mounted after disks, such as NFS exports, tmpfs
	// and bind mounts. A change replaces machines. If not set, none are mounted.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Mounts []Mount `json:"mounts,omitempty"`

	// swap creates a swap file and lets the kubelet start with swap. A change replaces
	// machines. If not set, there is no swap file.
	// +optional
	Swap SwapSpec `json:"swap,omitempty,omitzero"`

	// kernel configures the kernel. A change replaces machines. If not set, the
	// settings of the image apply.
	// +optional
	Kernel KernelSpec `json:"kernel,omitempty,omitzero"`

	// containerd adds to the configuration of containerd. A change replaces machines.
	// If not set, the configuration of the image applies.
	// +optional
	Containerd ContainerdSpec `json:"containerd,omitempty,omitzero"`

	// bootCommands are shell commands that cloud-init runs early during boot, before files
	// are written and the network is configured, at each boot until the node has joined.
	// They need format cloud-config. A change replaces machines. If not set, none run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=10240
	BootCommands []string `json:"bootCommands,omitempty"`

	// preKubeadmCommands are shell commands that run before kubeadm. If one fails, the
	// machine does not become a node. A change replaces machines. If not set, none run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=10240
	PreKubeadmCommands []string `json:"preKubeadmCommands,omitempty"`

	// postKubeadmCommands are shell commands that run after kubeadm. A change replaces
	// machines. If not set, none run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=10240
	PostKubeadmCommands []string `json:"postKubeadmCommands,omitempty"`
}

// GetFormat returns the format or its default.
func (s *NodeConfigSpec) GetFormat() Format {
	return cmp.Or(s.Format, FormatCloudConfig)
}

// KubeletSpec configures the kubelet.
// +kubebuilder:validation:MinProperties=1
type KubeletSpec struct {
	// extraArgs are command line arguments of the kubelet. They override the
	// arguments that the provider sets; node-labels are added to the labels of the
	// roles. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=value
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	ExtraArgs []Arg `json:"extraArgs,omitempty"`
}

// KubeadmSpec configures kubeadm on one machine.
// +kubebuilder:validation:MinProperties=1
type KubeadmSpec struct {
	// ignorePreflightErrors are preflight checks whose errors kubeadm shows as
	// warnings. The value all stands for all checks. If not set, each error fails
	// kubeadm.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`

	// imagePullPolicy is when kubeadm pulls images: Always, IfNotPresent or Never.
	// Defaults to IfNotPresent.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`

	// configPatches are merged into the configuration of kubeadm. Use the fields of
	// this API where one exists. If not set, none are merged.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	ConfigPatches []ConfigPatch `json:"configPatches,omitempty"`

	// patches are patches that kubeadm applies to the components that it deploys, see
	// "kubeadm init --patches". If not set, none are applied.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Patches []ComponentPatch `json:"patches,omitempty"`

	// verbosity is the log level of kubeadm. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Verbosity *int32 `json:"verbosity,omitempty"`
}

// ConfigPatch is merged into one document of the configuration of kubeadm.
type ConfigPatch struct {
	// kind is the kind of the document. kubeadm reads InitConfiguration and
	// KubeProxyConfiguration when the cluster is initialized: a change of their patches
	// replaces nothing.
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

	// type is strategic, merge or json. Defaults to strategic.
	// +optional
	// +kubebuilder:validation:Enum=strategic;merge;json
	Type string `json:"type,omitempty"`

	// patch is the patch, written as YAML or JSON.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Patch string `json:"patch,omitempty"`
}

// ContentFormat is how the content of a file is interpreted.
// +kubebuilder:validation:Enum=Plain;Template
type ContentFormat string

// Formats of the content of a file.
const (
	ContentFormatPlain    ContentFormat = "Plain"
	ContentFormatTemplate ContentFormat = "Template"
)

// ContentEncoding is the encoding of the content of a file.
// +kubebuilder:validation:Enum=Base64;Gzip;GzipBase64
type ContentEncoding string

// Encodings of the content of a file.
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

	// owner is the user and group, such as root:root. Defaults to root:root.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Owner string `json:"owner,omitempty"`

	// permissions are the octal mode. Defaults to "0640".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^0?[0-7]{3,4}$')",message="permissions must be an octal mode such as 0640"
	Permissions string `json:"permissions,omitempty"`

	// append appends to the file instead of replacing it. Defaults to false.
	// +optional
	Append *bool `json:"append,omitempty"`

	// content is the content. Exactly one of content and contentFrom must be set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	Content string `json:"content,omitempty"`

	// contentFrom is the Secret or ConfigMap in the same namespace with the content.
	// Exactly one of content and contentFrom must be set.
	// +optional
	ContentFrom FileSource `json:"contentFrom,omitempty,omitzero"`

	// contentFormat is Plain, or Template for a Go text/template that may use
	// .Cluster.Name, .Cluster.Namespace, .Machine.Name, .Version, .Endpoint.Host,
	// .Endpoint.Port and .Roles. Defaults to Plain.
	// +optional
	ContentFormat ContentFormat `json:"contentFormat,omitempty"`

	// encoding is the encoding of the content, which the node decodes: Base64, Gzip or
	// GzipBase64. If not set, the content is not encoded.
	// +optional
	Encoding ContentEncoding `json:"encoding,omitempty"`
}

// FileSource is a key of a Secret or ConfigMap in the same namespace.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.secret) != has(self.configMap)",message="exactly one of secret and configMap must be set"
type FileSource struct {
	// secret is a key of a Secret. Exactly one of secret and configMap must be set.
	// +optional
	Secret KeyReference `json:"secret,omitempty,omitzero"`

	// configMap is a key of a ConfigMap. Exactly one of secret and configMap must be
	// set.
	// +optional
	ConfigMap KeyReference `json:"configMap,omitempty,omitzero"`
}

// KeyReference is a key of a Secret or ConfigMap in the same namespace.
type KeyReference struct {
	// name is the name of the object.
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

// NovaConfigStatus is the observed state of a NovaConfig.
type NovaConfigStatus struct {
	// conditions are Ready, DataSecretAvailable and Paused. They are not set before
	// the first reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization holds the state that Cluster API waits for. It is not set before
	// the bootstrap data is stored.
	// +optional
	Initialization NovaConfigInitializationStatus `json:"initialization,omitempty,omitzero"`

	// dataSecretName is the name of the Secret with the bootstrap data. It is not set
	// before the Secret exists.
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
	// dataSecretCreated is true once the bootstrap data is stored in a Secret. If not
	// set, it is not stored yet.
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaconfigs,scope=Namespaced,categories=cluster-api,shortName=novacfg
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether the bootstrap data is stored in a Secret"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='DataSecretAvailable')].reason",description="Reason of the condition DataSecretAvailable"
// +kubebuilder:printcolumn:name="Roles",type="string",JSONPath=".spec.roles",description="Roles of the node",priority=10
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".status.dataSecretName",description="Secret with the bootstrap data",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of the condition Ready"

// NovaConfig configures one machine and renders its bootstrap data.
type NovaConfig struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is read when the bootstrap data of the machine is
	// rendered. A change does not replace the machine. If not set, the machine becomes a
	// node with defaults.
	// +optional
	Spec NovaConfigSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. It is not set before the first reconcile.
	// +optional
	Status NovaConfigStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaConfig) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaConfig) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// IsNovaConfig reports whether the bootstrap reference of a Machine refers to a NovaConfig.
func IsNovaConfig(ref clusterv1.ContractVersionedObjectReference) bool {
	return ref.Kind == "NovaConfig" && ref.APIGroup == GroupVersion.Group
}

// +kubebuilder:object:root=true

// NovaConfigList is a list of NovaConfigs.
type NovaConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaConfig `json:"items"`
}

// NovaConfigTemplateSpec holds the template.
type NovaConfigTemplateSpec struct {
	// template is the template of a NovaConfig.
	// +required
	Template NovaConfigTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaConfigTemplateResource is the template of a NovaConfig.
// +kubebuilder:validation:MinProperties=1
type NovaConfigTemplateResource struct {
	// metadata holds labels and annotations for the NovaConfig. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the NovaConfig. If not set, machines become nodes with
	// defaults.
	// +optional
	Spec NovaConfigSpec `json:"spec,omitempty,omitzero"`
}

// NovaConfigTemplateStatus is the observed state of a NovaConfigTemplate.
// +kubebuilder:validation:MinProperties=1
type NovaConfigTemplateStatus struct {
	// conditions are InPlaceUpdatable. They are not set before a MachineDeployment
	// moves to the template with rollout.inPlace Prefer or Only, or is paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaconfigtemplates,scope=Namespaced,categories=cluster-api,shortName=novacfgt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Roles",type="string",JSONPath=".spec.template.spec.roles",description="Roles of nodes"
// +kubebuilder:printcolumn:name="Format",type="string",JSONPath=".spec.template.spec.format",description="Format of the bootstrap data, cloud-config if not set",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='InPlaceUpdatable')].message",description="Message of the condition InPlaceUpdatable"

// NovaConfigTemplate is a template for NovaConfigs.
type NovaConfigTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaConfigTemplateSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. It is not set before there is a condition.
	// +optional
	Status NovaConfigTemplateStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (t *NovaConfigTemplate) GetConditions() []metav1.Condition { return t.Status.Conditions }

// SetConditions replaces the conditions.
func (t *NovaConfigTemplate) SetConditions(conditions []metav1.Condition) {
	t.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// NovaConfigTemplateList is a list of NovaConfigTemplates.
type NovaConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaConfigTemplate `json:"items"`
}
