package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// EtcdSnapshotAnnotation on a NovaControlPlane, with any value, asks for a
// snapshot of etcd now. It is taken off once the snapshot lies in the bucket.
// With one that is asked for the schedule goes on, whatever lies in the bucket.
// A restore that succeeded asks for one.
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
	// S3SessionTokenKey holds the token of temporary credentials; it may lack.
	S3SessionTokenKey = "sessionToken"
)

// EtcdSnapshotsHealthyCondition is true while the snapshots of etcd that are
// due lie in the bucket. It is there only where snapshots are asked for.
const EtcdSnapshotsHealthyCondition = "EtcdSnapshotsHealthy"

const (
	// EtcdSnapshotTakenReason: the last snapshot that was due lies in the bucket.
	EtcdSnapshotTakenReason = "SnapshotTaken"
	// EtcdSnapshotFailedReason: a snapshot is due and was not taken, the
	// message says why. It is tried again.
	EtcdSnapshotFailedReason = "SnapshotFailed"
	// EtcdSnapshotStorageReason: the bucket could not be read, or the settings
	// for it are not usable, the message says why.
	EtcdSnapshotStorageReason = "StorageUnavailable"
	// EtcdSnapshotPendingReason: no snapshot has been due yet, or etcd does not
	// run yet.
	EtcdSnapshotPendingReason = "SnapshotPending"
	// EtcdSnapshotHistoryMismatchReason: the newest snapshot in the bucket is not
	// of what etcd holds now: the control plane was made anew. None is taken
	// and none removed until one of the two is settled for.
	EtcdSnapshotHistoryMismatchReason = "SnapshotHistoryMismatch"
	// EtcdSnapshotNotAuthenticReason: the newest snapshot in the bucket is not
	// signed with the key of the cluster. None is taken and none removed until
	// it is removed or a snapshot is requested by annotation.
	EtcdSnapshotNotAuthenticReason = "SnapshotNotAuthentic"
	// EtcdSnapshotSuspendedReason: snapshots are suspended.
	EtcdSnapshotSuspendedReason = "Suspended"
)

// EtcdSpec says where etcd runs and how what it holds is kept safe.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.snapshots)",message="whoever runs external etcd takes its snapshots: snapshots cannot be set beside external"
type EtcdSpec struct {
	// external is an etcd that somebody else runs. The API servers trust the
	// certificate in Secret <cluster>-etcd (tls.crt) and prove themselves with
	// Secret <cluster>-apiserver-etcd-client (tls.crt and tls.key), both in the
	// namespace of the Cluster and there before the control plane is made. It
	// is settled when the control plane is made. Empty puts a member of etcd
	// on each control plane machine.
	// +optional
	External ExternalEtcdSpec `json:"external,omitempty,omitzero"`

	// snapshots are taken of etcd on a schedule and put into a bucket. They
	// hold the tenant's Secrets: keep the bucket as you keep those. Empty takes
	// none.
	// +optional
	Snapshots EtcdSnapshotsSpec `json:"snapshots,omitempty,omitzero"`
}

// ExternalEtcdSpec is an etcd that somebody else runs.
type ExternalEtcdSpec struct {
	// endpoints are the URLs of its members.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(e, isURL(e) && url(e).getScheme() == 'https' && url(e).getHost() != '' && url(e).getEscapedPath() in ['', '/'])",message="endpoints must be URLs such as https://etcd-0.example.org:2379"
	Endpoints []string `json:"endpoints,omitempty"`
}

// EtcdSnapshotsSpec says when snapshots of etcd are taken and where they are kept.
type EtcdSnapshotsSpec struct {
	// schedule says when, in the format of cron and in UTC unless it begins
	// with CRON_TZ=<zone>: "0 */6 * * *", "@hourly" or "@every 30m". A
	// snapshot that was missed is taken once, as soon as it can be.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^((CRON_TZ|TZ)=[A-Za-z0-9_/+-]+ +)?([^ ]+( +[^ ]+){4}|@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every +[0-9hms.]+)$')",message="schedule must have the five fields of cron, such as 0 */6 * * *, or be one of @hourly, @daily, @weekly, @monthly, @yearly and @every <duration>"
	Schedule string `json:"schedule,omitempty"`

	// retention says which snapshots are kept. Empty keeps the last 14.
	// +optional
	Retention EtcdSnapshotRetention `json:"retention,omitempty,omitzero"`

	// s3 is the bucket.
	// +required
	S3 S3Spec `json:"s3,omitempty,omitzero"`

	// beforeUpgrade lets the upgrade to another minor version wait until a
	// snapshot is stored that was begun after spec.version was changed. While no
	// snapshot can be taken, the upgrade does not begin. If not set, upgrades do
	// not wait for a snapshot.
	// +optional
	BeforeUpgrade *bool `json:"beforeUpgrade,omitempty"`

	// suspend stops the schedule and the removal of old snapshots. A snapshot
	// that is asked for by annotation is still taken. Empty means false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// EtcdSnapshotRetention says which snapshots are kept. A snapshot goes when
// either limit says so; the newest never goes, nor the newest of a control plane
// of the same name that was there before.
// +kubebuilder:validation:MinProperties=1
type EtcdSnapshotRetention struct {
	// count is how many are kept. Empty means 14 if days is empty too, and no
	// limit otherwise.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Count int32 `json:"count,omitempty"`

	// days is how long each is kept. Empty means for ever.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	Days int32 `json:"days,omitempty"`
}

// DefaultEtcdSnapshotCount is how many snapshots are kept where nothing is said.
const DefaultEtcdSnapshotCount = int32(14)

// S3Encryption is how a bucket's server encrypts what it stores.
// +kubebuilder:validation:Enum=AES256;KMS
type S3Encryption string

// Ways of a bucket's server to encrypt.
const (
	// S3EncryptionAES256 lets the server use keys of its own (SSE-S3).
	S3EncryptionAES256 S3Encryption = "AES256"
	// S3EncryptionKMS lets the server use a key of its key service (SSE-KMS).
	S3EncryptionKMS S3Encryption = "KMS"
)

// S3Spec is a place in an S3-compatible bucket.
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || has(self.encryption) && self.encryption == 'KMS'",message="kmsKeyID needs encryption KMS"
// +kubebuilder:validation:XValidation:rule="!has(self.encryption) || self.encryption != 'KMS' || has(self.kmsKeyID)",message="encryption KMS needs kmsKeyID"
type S3Spec struct {
	// endpoint is the server's URL. Nodes that restore a snapshot must reach
	// it too.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHost() != '' && url(self).getEscapedPath() in ['', '/']",message="endpoint must be a URL such as https://s3.example.org: snapshots hold Secrets, so it must be https, and the bucket is said in bucket"
	Endpoint string `json:"endpoint,omitempty"`

	// bucket is the bucket's name. It must exist.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9.-]*[a-z0-9]$')",message="bucket must be a bucket's name: lower case letters, digits, dots and dashes"
	Bucket string `json:"bucket,omitempty"`

	// prefix stands before the names of all objects; below it each cluster
	// has <namespace>/<cluster>/. Two management clusters that share a bucket
	// need different ones. Empty means none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$') && !self.split('/').exists(p, p == '.' || p == '..')",message="prefix must be words of letters, digits, dots, dashes and underscores with a slash between them"
	Prefix string `json:"prefix,omitempty"`

	// region is the bucket's region. Empty means us-east-1, which most
	// servers outside AWS take for theirs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// pathStyle puts the bucket's name into the path instead of the host's
	// name. Empty lets the endpoint decide: the host's name for AWS, the path
	// for all others.
	// +optional
	PathStyle *bool `json:"pathStyle,omitempty"`

	// credentials names a Secret in the same namespace with accessKeyID and
	// secretAccessKey, and sessionToken if they are temporary.
	// +required
	Credentials bootstrapv1.SecretReference `json:"credentials,omitempty,omitzero"`

	// trustedCA are the certificates that the server is verified against.
	// Empty takes those of the system.
	// +optional
	TrustedCA bootstrapv1.FileSource `json:"trustedCA,omitempty,omitzero"`

	// encryption lets the server encrypt what it stores. Empty leaves that to
	// the bucket's own setting.
	// +optional
	Encryption S3Encryption `json:"encryption,omitempty"`

	// kmsKeyID is the key for encryption KMS.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// EtcdStatus is what is known of etcd's snapshots.
// +kubebuilder:validation:MinProperties=1
type EtcdStatus struct {
	// lastSnapshot is the newest snapshot in the bucket. Empty until there is
	// one.
	// +optional
	LastSnapshot EtcdSnapshotStatus `json:"lastSnapshot,omitempty,omitzero"`

	// nextSnapshotTime is when the next one is due. Empty while snapshots are
	// suspended or etcd does not run yet.
	// +optional
	NextSnapshotTime *metav1.Time `json:"nextSnapshotTime,omitempty"`

	// lastFailureTime is when taking a snapshot failed last. Empty once the
	// next one is taken.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// snapshots is the number of snapshots in the bucket. Empty until it was
	// read.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Snapshots *int32 `json:"snapshots,omitempty"`
}

// EtcdSnapshotStatus is one snapshot of etcd.
type EtcdSnapshotStatus struct {
	// name names the snapshot for a NovaEtcdRestore.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// time is when it was begun.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`

	// size is its size in bytes.
	// +required
	// +kubebuilder:validation:Minimum=1
	Size int64 `json:"size,omitempty"`

	// revision is etcd's revision when it was begun. The snapshot holds it,
	// and may hold later ones.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`

	// durationSeconds is how long it took to take it, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=1
	DurationSeconds int32 `json:"durationSeconds,omitempty"`
}

// IsDefined reports whether etcd is somebody else's.
func (e *ExternalEtcdSpec) IsDefined() bool { return len(e.Endpoints) > 0 }

// IsDefined reports whether snapshots are asked for.
func (s *EtcdSnapshotsSpec) IsDefined() bool { return s.Schedule != "" }

// GatesUpgrades reports whether minor upgrades wait for a snapshot.
func (s *EtcdSnapshotsSpec) GatesUpgrades() bool { return s.BeforeUpgrade != nil && *s.BeforeUpgrade }

// IsSuspended reports whether the schedule stands still.
func (s *EtcdSnapshotsSpec) IsSuspended() bool { return s.Suspend != nil && *s.Suspend }

// GetCount returns how many snapshots are kept, 0 for no limit.
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
