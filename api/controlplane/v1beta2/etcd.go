package v1beta2

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// EtcdSnapshotAnnotation on a NovaControlPlane, with any value, requests a snapshot
// of etcd now. It is removed once the snapshot is stored in the bucket. The schedule
// continues after such a snapshot even if the bucket holds snapshots of another
// control plane. A restore that succeeded requests one.
const EtcdSnapshotAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-snapshot"

// UpgradeSnapshotAnnotation on a NovaControlPlane holds the version of the
// upgrade that waits for a snapshot and when that snapshot was requested, for
// instance "v1.37.0 2026-11-23T02:30:00Z".
const UpgradeSnapshotAnnotation = "controlplane.cluster.x-k8s.io/nova-upgrade-snapshot"

// Keys of the Secret with the credentials for a bucket.
const (
	// S3AccessKeyIDKey holds the access key's ID.
	S3AccessKeyIDKey = "accessKeyID"
	// S3SecretAccessKeyKey holds the secret access key.
	S3SecretAccessKeyKey = "secretAccessKey"
	// S3SessionTokenKey holds the token of temporary credentials. It is optional.
	S3SessionTokenKey = "sessionToken"
)

// NovaControlPlane's EtcdSnapshotsHealthy condition and corresponding reasons.
const (
	// EtcdSnapshotsHealthyCondition is true while the snapshots of etcd that are due are
	// stored in the bucket. It is set if etcd.snapshots is set.
	EtcdSnapshotsHealthyCondition = "EtcdSnapshotsHealthy"

	// EtcdSnapshotTakenReason: the last snapshot that was due is stored.
	//
	// Action: none.
	EtcdSnapshotTakenReason = "SnapshotTaken"

	// EtcdSnapshotFailedReason: a snapshot that is due failed, because no member of etcd
	// responded or the upload failed. It is retried after 10 s to 10 min.
	//
	// Action: none while etcd recovers. If the reason stays, check the condition
	// EtcdClusterHealthy and the bucket.
	EtcdSnapshotFailedReason = "SnapshotFailed"

	// EtcdSnapshotStorageReason: the bucket cannot be read, its settings are not valid, or
	// a Secret is missing. The message has the error of the server. It is retried after
	// 10 s to 10 min.
	//
	// Action: check the credentials, the certificate and the network.
	EtcdSnapshotStorageReason = "StorageUnavailable"

	// EtcdSnapshotPendingReason: etcd does not run yet, or is being restored, or no
	// snapshot was due yet.
	//
	// Action: wait.
	EtcdSnapshotPendingReason = "SnapshotPending"

	// EtcdSnapshotHistoryMismatchReason: the control plane was recreated: the newest
	// snapshot in the bucket is not from its etcd. No snapshot is taken by schedule or
	// removed until one of the two counts.
	//
	// Action: restore the snapshot, set another prefix, or request a snapshot by
	// annotation; see docs/etcd.md#recreated-under-the-same-name.
	EtcdSnapshotHistoryMismatchReason = "SnapshotHistoryMismatch"

	// EtcdSnapshotNotAuthenticReason: the newest snapshot in the bucket is not signed with
	// the key of the cluster: another program wrote it, or the cluster was recreated with
	// another CA. No snapshot is taken by schedule or removed.
	//
	// Action: find out which program wrote it. Then remove it, set another prefix, or
	// request a snapshot by annotation; see docs/etcd.md#who-may-write-to-the-bucket.
	EtcdSnapshotNotAuthenticReason = "SnapshotNotAuthentic"

	// EtcdSnapshotSuspendedReason: etcd.snapshots.suspend is set.
	//
	// Action: clear the field to take snapshots again.
	EtcdSnapshotSuspendedReason = "Suspended"
)

// EtcdSpec selects where etcd runs, configures it and schedules its snapshots.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.local)",message="local configures etcd on control plane machines and cannot be set beside external: configure external etcd where it runs"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.snapshots)",message="snapshots cannot be set beside external: snapshots of external etcd are taken where it runs"
type EtcdSpec struct {
	// local configures the etcd members on control plane machines. A change replaces
	// control plane machines. If not set, the defaults of kubeadm apply.
	// +optional
	Local LocalEtcdSpec `json:"local,omitempty,omitzero"`

	// external is an etcd that is operated elsewhere. The API servers trust the
	// certificate in Secret <cluster>-etcd (tls.crt) and authenticate with Secret
	// <cluster>-apiserver-etcd-client (tls.crt and tls.key). Both must exist in the
	// namespace of the Cluster before the control plane is created. It can be set
	// only when the control plane is created. A change of its endpoints replaces
	// control plane machines. If not set, each control plane machine runs an etcd
	// member.
	// +optional
	External ExternalEtcdSpec `json:"external,omitempty,omitzero"`

	// snapshots schedules snapshots of etcd and sets the bucket that stores them. They
	// contain the Secrets of the workload cluster: protect the bucket accordingly. A
	// change replaces nothing. If not set, none are taken.
	// +optional
	Snapshots EtcdSnapshotsSpec `json:"snapshots,omitempty,omitzero"`
}

// LocalEtcdSpec configures the etcd members on control plane machines.
// +kubebuilder:validation:MinProperties=1
type LocalEtcdSpec struct {
	// extraArgs are command line arguments of etcd. They override the arguments that
	// the provider sets. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=value
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	ExtraArgs []bootstrapv1.Arg `json:"extraArgs,omitempty"`

	// extraEnvs are environment variables of etcd. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	ExtraEnvs []bootstrapv1.EnvVar `json:"extraEnvs,omitempty"`

	// dataDir is the directory of the data. Defaults to /var/lib/etcd.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$')",message="dataDir must be an absolute path such as /var/lib/etcd"
	DataDir string `json:"dataDir,omitempty"`

	// imageRepository is the registry and path of the image of etcd. Defaults to
	// platform.imageRepository.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._/-]+)?$')",message="imageRepository must be a registry and path such as registry.example/k8s"
	ImageRepository string `json:"imageRepository,omitempty"`

	// imageTag is the tag of the image of etcd. If not set, it is the tag that kubeadm
	// selects for the Kubernetes version.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*$')",message="imageTag must be a tag such as 3.6.6-0"
	ImageTag string `json:"imageTag,omitempty"`
}

// ExternalEtcdSpec is an etcd that is operated elsewhere.
type ExternalEtcdSpec struct {
	// endpoints are the URLs of the members. A change replaces control plane
	// machines.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(e, isURL(e) && url(e).getScheme() == 'https' && url(e).getHost() != '' && url(e).getEscapedPath() in ['', '/'])",message="endpoints must be URLs such as https://etcd-0.example.org:2379"
	Endpoints []string `json:"endpoints,omitempty"`
}

// EtcdSnapshotsSpec schedules snapshots of etcd and sets the bucket that stores them.
type EtcdSnapshotsSpec struct {
	// schedule is a cron schedule, in UTC unless it begins with CRON_TZ=<zone>, for
	// instance "0 */6 * * *", "@hourly" or "@every 30m". A missed snapshot is taken
	// once, as soon as possible. Defaults to "@every 6h".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^((CRON_TZ|TZ)=[A-Za-z0-9_/+-]+ +)?([^ ]+( +[^ ]+){4}|@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every +[0-9hms.]+)$')",message="schedule must have the five fields of cron, such as 0 */6 * * *, or be one of @hourly, @daily, @weekly, @monthly, @yearly and @every <duration>"
	Schedule string `json:"schedule,omitempty"`

	// retention limits the number and the age of snapshots. If not set, the last 14
	// are kept.
	// +optional
	Retention EtcdSnapshotRetention `json:"retention,omitempty,omitzero"`

	// s3 is the bucket that stores the snapshots.
	// +required
	S3 S3Spec `json:"s3,omitempty,omitzero"`

	// beforeUpgrade delays an upgrade to another minor version until a snapshot is
	// stored that was started after spec.version was changed. While no snapshot can be
	// taken, the upgrade does not start. If not set, upgrades do not wait for a
	// snapshot.
	// +optional
	BeforeUpgrade *bool `json:"beforeUpgrade,omitempty"`

	// suspend stops the schedule and the removal of old snapshots. A snapshot that is
	// requested by annotation is still taken. Defaults to false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// EtcdSnapshotRetention limits the number and the age of snapshots. A snapshot is
// removed when it exceeds either limit. The newest snapshot is never removed, nor the
// newest of a previous control plane of the same name.
// +kubebuilder:validation:MinProperties=1
type EtcdSnapshotRetention struct {
	// count is the number of snapshots that are kept. Defaults to 14. If days is set,
	// there is no default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Count int32 `json:"count,omitempty"`

	// days is the number of days after which a snapshot is removed. If not set, age
	// does not matter.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	Days int32 `json:"days,omitempty"`
}

// DefaultEtcdSnapshotSchedule is the default schedule of snapshots.
const DefaultEtcdSnapshotSchedule = "@every 6h"

// DefaultEtcdSnapshotCount is the default number of snapshots that are kept.
const DefaultEtcdSnapshotCount = int32(14)

// S3Encryption is how the server encrypts objects of a bucket.
// +kubebuilder:validation:Enum=AES256;KMS
type S3Encryption string

// Encryption by the server.
const (
	// S3EncryptionAES256 uses keys of the server (SSE-S3).
	S3EncryptionAES256 S3Encryption = "AES256"
	// S3EncryptionKMS uses a key of the key management service (SSE-KMS).
	S3EncryptionKMS S3Encryption = "KMS"
)

// S3Spec is a prefix in a bucket of an S3-compatible server.
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || has(self.encryption) && self.encryption == 'KMS'",message="kmsKeyID needs encryption KMS"
// +kubebuilder:validation:XValidation:rule="!has(self.encryption) || self.encryption != 'KMS' || has(self.kmsKeyID)",message="encryption KMS needs kmsKeyID"
type S3Spec struct {
	// endpoint is the URL of the server. A node that restores a snapshot connects to it
	// too.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHost() != '' && url(self).getEscapedPath() in ['', '/']",message="endpoint must be a URL such as https://s3.example.org: snapshots hold Secrets, so it must be https, and the bucket is set in bucket"
	Endpoint string `json:"endpoint,omitempty"`

	// bucket is the name of the bucket. It must exist.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9.-]*[a-z0-9]$')",message="bucket must be the name of a bucket: lower case letters, digits, dots and dashes"
	Bucket string `json:"bucket,omitempty"`

	// prefix is the prefix of the names of all objects. <namespace>/<cluster>/ follows
	// it. Two management clusters that share a bucket need different prefixes. If not
	// set, there is no prefix.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$') && !self.split('/').exists(p, p == '.' || p == '..')",message="prefix must be words of letters, digits, dots, dashes and underscores with a slash between them"
	Prefix string `json:"prefix,omitempty"`

	// region is the region of the bucket. Defaults to us-east-1, which most servers
	// outside of AWS accept.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// pathStyle puts the name of the bucket into the path of the URL instead of the
	// host name. Defaults to false for AWS and to true for other endpoints.
	// +optional
	PathStyle *bool `json:"pathStyle,omitempty"`

	// credentialsSecretRef names a Secret in the same namespace with the keys
	// accessKeyID and secretAccessKey, and sessionToken for temporary credentials.
	// +required
	CredentialsSecretRef bootstrapv1.SecretReference `json:"credentialsSecretRef,omitempty,omitzero"`

	// trustedCAFrom is the Secret or ConfigMap with the CA certificates, in PEM, that
	// the server is verified against. If not set, those of the system are used.
	// +optional
	TrustedCAFrom bootstrapv1.FileSource `json:"trustedCAFrom,omitempty,omitzero"`

	// encryption is how the server encrypts objects: AES256 or KMS. If not set, the
	// default of the bucket applies.
	// +optional
	Encryption S3Encryption `json:"encryption,omitempty"`

	// kmsKeyID is the ID of the key for encryption KMS, which requires it. If not set,
	// encryption must not be KMS.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// EtcdStatus is the observed state of snapshots of etcd.
// +kubebuilder:validation:MinProperties=1
type EtcdStatus struct {
	// lastSnapshot is the newest snapshot in the bucket. It is not set before the first
	// snapshot.
	// +optional
	LastSnapshot EtcdSnapshotStatus `json:"lastSnapshot,omitempty,omitzero"`

	// nextSnapshotTime is the time of the next scheduled snapshot. It is not set while
	// snapshots are suspended or before etcd runs.
	// +optional
	NextSnapshotTime *metav1.Time `json:"nextSnapshotTime,omitempty"`

	// lastFailureTime is the time of the last failure. It is removed when a snapshot
	// succeeds.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// snapshots is the number of snapshots in the bucket. It is not set before the
	// bucket was listed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Snapshots *int32 `json:"snapshots,omitempty"`
}

// EtcdSnapshotStatus describes a snapshot of etcd.
type EtcdSnapshotStatus struct {
	// name is the name of the snapshot, which a NovaEtcdRestore refers to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// time is the time at which the snapshot was started.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`

	// size is the size in bytes.
	// +required
	// +kubebuilder:validation:Minimum=1
	Size int64 `json:"size,omitempty"`

	// revision is the revision of etcd at the start of the snapshot. The snapshot may
	// contain later revisions.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`

	// durationSeconds is the duration of the snapshot, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=1
	DurationSeconds int32 `json:"durationSeconds,omitempty"`
}

// IsDefined reports whether external etcd is used.
func (e *ExternalEtcdSpec) IsDefined() bool { return len(e.Endpoints) > 0 }

// IsDefined reports whether snapshots are configured.
func (s *EtcdSnapshotsSpec) IsDefined() bool { return s.S3.Endpoint != "" }

// GetSchedule returns the schedule or its default.
func (s *EtcdSnapshotsSpec) GetSchedule() string {
	return cmp.Or(s.Schedule, DefaultEtcdSnapshotSchedule)
}

// GatesUpgrades reports whether minor upgrades wait for a snapshot.
func (s *EtcdSnapshotsSpec) GatesUpgrades() bool { return s.BeforeUpgrade != nil && *s.BeforeUpgrade }

// IsSuspended reports whether the schedule is suspended.
func (s *EtcdSnapshotsSpec) IsSuspended() bool { return s.Suspend != nil && *s.Suspend }

// GetCount returns the number of snapshots that are kept, 0 for no limit.
func (r *EtcdSnapshotRetention) GetCount() int32 {
	switch {
	case r.Count != 0:
		return r.Count
	case r.Days != 0:
		return 0
	default:
		return DefaultEtcdSnapshotCount
	}
}
