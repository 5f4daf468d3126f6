package plan

import (
	"time"
)

// Strategy says how machines that differ from the spec are replaced.
type Strategy string

const (
	// RollingUpdate replaces one after another.
	RollingUpdate Strategy = "RollingUpdate"
	// OnDelete replaces a machine when somebody deletes it.
	OnDelete Strategy = "OnDelete"
)

// Role says how a machine becomes a node. It is settled once, before the
// machine boots.
type Role string

const (
	// Undecided is the role of a machine without bootstrap data.
	Undecided Role = ""
	// Init runs kubeadm init.
	Init Role = "Init"
	// Join runs kubeadm join.
	Join Role = "Join"
)

// Input is what was observed and what is wanted.
type Input struct {
	// Now is when it was observed.
	Now time.Time

	// Replicas is the number of machines wanted.
	Replicas int
	// Version is the Kubernetes version wanted.
	Version string
	// Strategy is RollingUpdate or OnDelete; empty means RollingUpdate.
	Strategy Strategy
	// MaxSurge is 0 or 1: how many machines more a rollout may make.
	MaxSurge int
	// RolloutAfter replaces machines created before it, once it has passed.
	// Zero means never.
	RolloutAfter time.Time
	// ExpiryWindow replaces machines whose certificates expire within it. Zero
	// means never.
	ExpiryWindow time.Duration
	// CertificateLifetime is how long the certificates of a new machine last;
	// zero if that is not known.
	CertificateLifetime time.Duration
	// Limits bound remediation.
	Limits Limits

	// Initialized is true once kubeadm init is known to be through. It never
	// becomes false again. A node that joined says the same.
	Initialized bool
	// Unasked is true while nobody could ask the tenant whether it is
	// initialised: it may be, and nobody has noted it.
	Unasked bool
	// LockHolder is the machine that the init lock names; empty if nobody took
	// it yet. Its Machine may be gone.
	LockHolder string
	// LockSince is when it took the lock; zero if that is not known.
	LockSince time.Time
	// Machines are all machines of the control plane, also those that go.
	Machines []Machine
	// ExternalEtcd is true if etcd runs elsewhere. Machines have no members
	// then, and it is somebody else's to keep its quorum.
	ExternalEtcd bool
	// Etcd is nil if etcd could not be asked.
	Etcd *Etcd
	// Silence is why it could not be asked, for people.
	Silence string
	// KubeadmVersion is the version in kubeadm's stored configuration, which a
	// joining control plane takes; empty if it is not known.
	KubeadmVersion string
	// NoJoin is why a machine that is made now could not join, for people;
	// empty if nothing is known that keeps it from it.
	NoJoin string
	// OldestKubelet is the lowest version of a worker's kubelet; empty if
	// there is none.
	OldestKubelet string
	// LastRemediation is the one that was begun last; nil if there was none.
	LastRemediation *Remediation
}

// Limits bound remediation.
type Limits struct {
	// MaxRetry is how often the replacement of a machine may be replaced in
	// turn. Negative means without end.
	MaxRetry int
	// RetryPeriod is the least time between such replacements.
	RetryPeriod time.Duration
	// MinHealthyPeriod is after which time a failure is a new one and no retry.
	MinHealthyPeriod time.Duration
	// JoinBound bounds the initialization by a machine, and the join of a machine
	// whose JoinBy is not known.
	JoinBound time.Duration
	// LearnerGrace is how long a join takes at most once it was begun: so long
	// a member that has not started and belongs to nobody is left alone.
	LearnerGrace time.Duration
}

// Machine is one machine.
type Machine struct {
	Name    string
	Created time.Time
	// Started is when its infrastructure became ready; zero if that is not known.
	Started time.Time
	// JoinBy is until when it may begin to join; zero if that is not known.
	JoinBy time.Time
	// Version is the one it was made with.
	Version string
	// Domain is its failure domain; empty if there are none.
	Domain string
	// Role is how it becomes a node.
	Role Role
	// Booted is true once its host may have started with bootstrap data.
	Booted bool
	// Joined is true if it was a member of etcd. Whoever removes its member
	// stores that first: a member that was removed does not join again, so
	// nobody has to wait whether it does.
	Joined bool
	// Node is true if its node exists.
	Node bool
	// APIServer is the state of the API server on it.
	APIServer APIServer
	// SkipRedundancy is true if an administrator lets the machine be removed
	// before others replace it.
	SkipRedundancy bool
	// Ready is true if the node is ready and the control plane's components
	// there are healthy.
	Ready bool
	// Differs names what it was not made with, for people.
	Differs []string
	// CertificatesExpire is when the first of its certificates expires; zero
	// if that is not known.
	CertificatesExpire time.Time
	// DeleteFirst is true if somebody asked for it to be the first to go.
	DeleteFirst bool
	// Remediate is why a MachineHealthCheck asks for its replacement; empty if
	// none does.
	Remediate string
	// Replaces is the machine whose remediation it was made for.
	Replaces string
	// Deleting is true once its deletion was asked for.
	Deleting bool
	// AtHook is true while the deletion waits for our pre-terminate hook.
	AtHook bool
	// Released is true once a deleted machine bears no such hook any more: its
	// host may be gone at any moment.
	Released bool
}

// Etcd is what etcd said of itself.
type Etcd struct {
	Members []Member
	// Alarms are those that are raised, for people.
	Alarms []string
	// Strays are the IDs of members that are gone and left alarms behind.
	Strays []uint64
}

// Member is one member of etcd.
type Member struct {
	ID uint64
	// Name is empty until the member has started.
	Name string
	// Machine is the one that it runs on, found by the node's name or, before
	// the member has started, by its address; empty if none is found.
	Machine string
	// Foreign is true if it belongs to no machine but to somebody: it answers,
	// or its node is there. It is left alone.
	Foreign bool
	// Since is when it was first seen.
	Since time.Time
	// Learner is true until the member votes.
	Learner bool
	// Healthy is true if it answered and saw a leader.
	Healthy bool
	// Leader is true for the leader.
	Leader bool
	// Clings is true if its leadership could not be moved, again and again: it
	// goes with the member then.
	Clings bool
}

// Remediation is a remediation that was begun. Whoever carries it out stores
// it first.
type Remediation struct {
	Machine string
	At      time.Time
	// Replaces is the machine whose remediation that one was made for.
	Replaces string
	// Retries counts the replacements before it that failed too.
	Retries int
}
