package plan

import (
	"time"
)

// Strategy is how machines that differ from the spec are replaced.
type Strategy string

const (
	// RollingUpdate replaces one machine after another.
	RollingUpdate Strategy = "RollingUpdate"
	// OnDelete replaces a machine after a user deletes it.
	OnDelete Strategy = "OnDelete"
)

// InPlace is whether machines that differ from the spec are changed in place.
type InPlace string

const (
	// Never replaces machines.
	Never InPlace = "Never"
	// Prefer changes machines in place if that is possible, and replaces them
	// otherwise.
	Prefer InPlace = "Prefer"
	// Only never replaces a machine because it differs from the spec.
	Only InPlace = "Only"
)

// Role is how a machine becomes a node. It is decided once, before the machine
// boots.
type Role string

const (
	// Undecided is the role of a machine without bootstrap data.
	Undecided Role = ""
	// Init runs kubeadm init.
	Init Role = "Init"
	// Join runs kubeadm join.
	Join Role = "Join"
)

// Input is the observed and the desired state.
type Input struct {
	// Now is the time of the observation.
	Now time.Time

	// Replicas is the desired number of machines.
	Replicas int
	// Version is the desired Kubernetes version.
	Version string
	// Strategy is RollingUpdate or OnDelete. If not set, it is RollingUpdate.
	Strategy Strategy
	// MaxSurge is 0 or 1: how many additional machines a rollout may create.
	MaxSurge int
	// InPlace is Never, Prefer or Only. If not set, it is Never.
	InPlace InPlace
	// RolloutPaused is true while no machine is changed or replaced because it is
	// outdated.
	RolloutPaused bool
	// RolloutAfter replaces machines that were created before it, once it has
	// passed. Zero means never.
	RolloutAfter time.Time
	// ExpiryWindow replaces machines whose certificates expire within it. Zero
	// means never.
	ExpiryWindow time.Duration
	// CertificateLifetime is the lifetime of the certificates of a new machine;
	// zero if unknown.
	CertificateLifetime time.Duration
	// Limits bound remediation.
	Limits Limits

	// Initialized is true once kubeadm init is known to have succeeded. It
	// never becomes false again. A node that joined proves it too.
	Initialized bool
	// InitUnknown is true while the workload cluster could not be queried: it may
	// be initialized without that being recorded.
	InitUnknown bool
	// LockHolder is the machine that holds the init lock; empty if no machine
	// held it yet. Its Machine may be deleted.
	LockHolder string
	// LockSince is when it acquired the lock; zero if unknown.
	LockSince time.Time
	// Machines are all machines of the control plane, including those being
	// deleted.
	Machines []Machine
	// ExternalEtcd is true if etcd runs elsewhere. Machines have no members
	// then, and the administrator of that etcd keeps its quorum.
	ExternalEtcd bool
	// Etcd is nil if etcd could not be reached.
	Etcd *Etcd
	// EtcdProblem is why etcd could not be reached, for users.
	EtcdProblem string
	// KubeadmVersion is the version in kubeadm's stored configuration, which
	// joining control plane machines use; empty if unknown.
	KubeadmVersion string
	// JoinBlocked is why a machine created now could not join, for users; empty if
	// no such reason is known.
	JoinBlocked string
	// OldestKubelet is the lowest version of a worker's kubelet; empty if there
	// are no workers.
	OldestKubelet string
	// LastRemediation is the remediation that began last; nil if there was
	// none.
	LastRemediation *Remediation
	// Requirements are facts that come before all decisions about machines.
	Requirements Requirements
	// Restore is the state of restores of etcd.
	Restore Restore
	// Endpoint is the state of the endpoint's address; nil if no node is known to
	// hold it, or the API server does not answer.
	Endpoint *Endpoint
}

// Limits bound remediation.
type Limits struct {
	// MaxRetry is how many times in a row the replacement of a machine may be
	// replaced. Negative means no limit.
	MaxRetry int
	// RetryPeriod is the minimum time between such replacements.
	RetryPeriod time.Duration
	// MinHealthyPeriod is the time after which a failure counts as a new one
	// and not as a retry.
	MinHealthyPeriod time.Duration
	// JoinTimeout bounds the initialization by a machine, and the join of a
	// machine whose JoinBy is unknown.
	JoinTimeout time.Duration
	// LearnerGrace is the maximum time of a join after it began. An unstarted
	// member without a machine is not removed before that.
	LearnerGrace time.Duration
	// RestoreTimeout is how long a machine may take to restore a snapshot and
	// initialize the control plane before another one tries. RestorePause is the
	// minimum lifetime of a machine that failed to restore: the cause of an
	// immediate failure makes the next one fail too.
	RestoreTimeout, RestorePause time.Duration
	// EndpointMoveTimeout is how long a machine to be deleted waits for another
	// one to take the endpoint's address.
	EndpointMoveTimeout time.Duration
	// UpdateTimeout is how long the change of a machine in place may take.
	UpdateTimeout time.Duration
}

// Machine is a control plane machine.
type Machine struct {
	Name    string
	Created time.Time
	// Started is when its infrastructure became ready; zero if unknown.
	Started time.Time
	// JoinBy is the time until which it may begin to join; zero if unknown.
	JoinBy time.Time
	// Version is the version that it was created with.
	Version string
	// Domain is its failure domain; empty if there are no failure domains.
	Domain string
	// Role is how it becomes a node.
	Role Role
	// Booted is true once its host may have started with bootstrap data.
	Booted bool
	// Joined is true if it was a member of etcd. It is stored before its member
	// is removed: a removed member does not join again, so no decision has to
	// wait for its join.
	Joined bool
	// Node is true if its node exists.
	Node bool
	// APIServer is the state of the API server on the machine.
	APIServer APIServer
	// SkipRedundancy is true if an administrator allows the removal of the
	// machine before others replace it.
	SkipRedundancy bool
	// Ready is true if the node is ready and the control plane's components
	// there are healthy.
	Ready bool
	// Differs names the settings in which it differs from the spec, for users.
	Differs []string
	// NeedReplacement are those of them that a running machine cannot change.
	NeedReplacement []string
	// Updating is true while the machine is changed in place, since UpdatingSince.
	// UpdateBegun is true once the change is left to Cluster API; UpdateProgress is
	// its progress, for users.
	Updating, UpdateBegun bool
	UpdatingSince         time.Time
	UpdateProgress        string
	// CertificatesExpire is when the first of its certificates expires; zero if
	// unknown.
	CertificatesExpire time.Time
	// DeleteFirst is true if a user marked it to be deleted first.
	DeleteFirst bool
	// Remediate is why a MachineHealthCheck requested its replacement; empty if
	// it did not.
	Remediate string
	// Replaces is the remediated machine that it replaces.
	Replaces string
	// Deleting is true if it has a deletion timestamp.
	Deleting bool
	// AtHook is true while the deletion waits for our pre-terminate hook.
	AtHook bool
	// Released is true once a deleted machine no longer has our hook: its host
	// may be deleted at any moment.
	Released bool
	// On is its node, and EndpointMove the move of the endpoint's address off it.
	On           Node
	EndpointMove EndpointMove
}

// Etcd is the state that etcd reports.
type Etcd struct {
	Members []Member
	// Alarms are the raised alarms, for users.
	Alarms []string
	// OrphanedAlarms are the IDs of removed members whose alarms are still raised.
	OrphanedAlarms []uint64
}

// Member is one member of etcd.
type Member struct {
	ID uint64
	// Name is empty until the member starts.
	Name string
	// Machine is the machine that it runs on, found by the node's name or,
	// before the member starts, by its address; empty if none is found.
	Machine string
	// Foreign is true if it belongs to no machine, but responds or has a node.
	// It is not removed, because another owner may use it.
	Foreign bool
	// Since is when it was first observed.
	Since time.Time
	// Learner is true until the member votes.
	Learner bool
	// Healthy is true if it responded and has a leader.
	Healthy bool
	// Leader is true for the leader.
	Leader bool
	// LeaderTransferFailed is true if the transfer of its leadership failed repeatedly: it is
	// then removed while it leads.
	LeaderTransferFailed bool
}

// Remediation is a remediation that began. It is stored before it is carried
// out.
type Remediation struct {
	Machine string
	At      time.Time
	// Replaces is the machine that the remediated machine replaced.
	Replaces string
	// Retries counts the preceding replacements that failed too.
	Retries int
}
