package scope

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// Kind is the kind of control planes, and ClusterKind that of Clusters.
const (
	Kind        = "NovaControlPlane"
	ClusterKind = "Cluster"
)

// Scope is the state of one reconcile. Fields are set from top to bottom.
type Scope struct {
	// At is the time of the observation.
	At           time.Time
	ControlPlane *controlplanev1.NovaControlPlane
	// Cluster is nil if it does not exist; only a deletion continues then.
	Cluster *clusterv1.Cluster
	// ClusterName is set even then.
	ClusterName string

	// Fenced is the reason why another management cluster acts, if there is
	// one.
	Fenced error

	// Machines are the machines that the control plane owns.
	Machines collections.Machines
	// OtherMachines are control plane machines of the cluster that another
	// controller owns.
	OtherMachines sets.Set[string]
	// Infra and Configs are the objects of the machines, by machine. Only the
	// metadata of infra is read.
	Infra   map[string]*metav1.PartialObjectMetadata
	Configs map[string]*bootstrapv1.NovaConfig
	// Differs are, by machine, the settings in which it differs from the spec.
	Differs map[string][]string
	// NeedReplacement are, by machine, the settings in which it differs from the
	// spec and that a running machine cannot change.
	NeedReplacement map[string][]string
	// Altered are, by machine, the fields that differ from the spec that the
	// machine was created from.
	Altered map[string][]string
	// Unapplied are settings that are not carried out.
	Unapplied []Unapplied
	// Lifetime is the lifetime of the certificates of a new machine.
	Lifetime time.Duration
	// TransferFailed are the members of etcd whose leadership transfer failed.
	TransferFailed map[uint64]bool
	// Lock is the state of the init lock.
	Lock initlock.State
	// Roles are the roles in the machines' bootstrap data, where it was read.
	Roles map[string]plan.Role
	// EndpointMoves are, by machine, the moves of the endpoint's address.
	EndpointMoves map[string]plan.EndpointMove
	// InGrace are nodes without a Machine that have not been down for long.
	InGrace sets.Set[string]
	// Workload is the observed state of the workload cluster.
	Workload facts.Cluster

	// Requirements are facts that come before all decisions about machines, and
	// Restore is the state of restores of etcd.
	Requirements plan.Requirements
	Restore      plan.Restore

	Certificates CertificatesState
	Rotation     Rotation
	// Initialized is true if the cluster was initialized. InitializationRecorded
	// is true if the init lock records it: later reconciles rely on the status
	// and do not look at the lock again.
	Initialized, InitializationRecorded bool
	// ExternalProblems are the problems of external etcd, for users.
	ExternalProblems []string
	// Blocked is why a missing machine cannot be created.
	Blocked string
	// Decision is the last decision; its action is empty if there is none.
	Decision plan.Decision
	// JoinBlocked is why a machine created now could not join, for users.
	JoinBlocked string
	// UpgradeWaits is why an upgrade waits for a snapshot, for users.
	UpgradeWaits string
	// Failures are errors that block no later step.
	Failures []error
	// Again is when to reconcile again without an event; 0 means never.
	Again time.Duration
}

// Unapplied is a setting that is not carried out, with the reason and the
// message of the condition SettingsApplied.
type Unapplied struct{ Reason, Message string }

// Rotation is the rotation of the cluster's CAs.
type Rotation struct {
	// State is the state of the CAs; nil if it is unknown.
	State *pki.Rotation
	// Stage is the reason of the condition AuthoritiesRotated, and Waits are the nodes and
	// machines that the next stage waits for.
	Stage string
	Waits []string
}

// CertificatesState is the state of the cluster's certificates.
type CertificatesState struct {
	Known bool
	Err   error
	// BlocksJoinsOnly is true if err blocks only machines that have not joined yet: the
	// nodes of a running cluster have their certificates.
	BlocksJoinsOnly bool
}

// BlocksAll reports whether nothing continues before the user fixes the
// certificates.
func (c CertificatesState) BlocksAll() bool { return c.Err != nil && !c.BlocksJoinsOnly }

// Key returns the key of the cluster.
func (s *Scope) Key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.ControlPlane.Namespace, Name: s.ClusterName}
}

// InCluster selects the objects of the cluster in a list.
func (s *Scope) InCluster() []client.ListOption {
	return []client.ListOption{client.InNamespace(s.ControlPlane.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.ClusterName}}
}

// Owner returns the owner reference for objects of the control plane.
func (s *Scope) Owner() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.ControlPlane, controlplanev1.GroupVersion.WithKind(Kind))
}

// RequeueAfter requests another reconcile after d at the latest.
func (s *Scope) RequeueAfter(d time.Duration) {
	if d > 0 && (s.Again == 0 || d < s.Again) {
		s.Again = d
	}
}

// Sorted returns the machines by name.
func (s *Scope) Sorted() []*clusterv1.Machine {
	return SortedMachines(s.Machines)
}

// SortedMachines returns machines by name.
func SortedMachines(machines collections.Machines) []*clusterv1.Machine {
	sorted := machines.UnsortedList()
	slices.SortFunc(sorted, func(a, b *clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}

// ExternalEtcd reports whether the control plane uses an external etcd.
func ExternalEtcd(s *Scope) bool { return len(s.ControlPlane.Spec.Etcd.External.Endpoints) > 0 }

// Unreachable reports whether the API server is unreachable and the cause is not
// known to be etcd's quorum.
func (s *Scope) Unreachable() bool {
	return !s.Workload.Answers && (s.Workload.Etcd == nil || s.Workload.Etcd.Quorum())
}

// Pending reports whether a condition of an initialized workload cluster stays
// unchanged: the cluster was not probed yet, and a restart of this process must
// not cause an alert.
func (s *Scope) Pending(condition string) bool {
	return s.Workload.Pending && ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false) &&
		conditions.Has(s.ControlPlane, condition)
}

// Parent returns the owner reference of an object that a machine will own: it
// protects the object until the machine becomes its owner, and deletes it with
// the control plane if that never happens.
func (s *Scope) Parent() metav1.OwnerReference {
	owner := s.Owner()
	return metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}
