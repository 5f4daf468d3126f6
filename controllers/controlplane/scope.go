package controlplane

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
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// scope is the state of one reconcile. Fields are set from top to bottom.
type scope struct {
	// at is the time of the observation.
	at           time.Time
	controlPlane *controlplanev1.NovaControlPlane
	// cluster is nil if it does not exist; only a deletion continues then.
	cluster *clusterv1.Cluster
	// clusterName is set even then.
	clusterName string

	// fenced is the reason why another management cluster acts, if there is
	// one.
	fenced error

	// machines are the machines that the control plane owns.
	machines collections.Machines
	// otherMachines are control plane machines of the cluster that another
	// controller owns.
	otherMachines sets.Set[string]
	// infra and configs are the objects of the machines, by machine. Only the
	// metadata of infra is read.
	infra   map[string]*metav1.PartialObjectMetadata
	configs map[string]*bootstrapv1.NovaConfig
	// differs are, by machine, the settings in which it differs from the spec,
	// and outdated the reasons for its replacement, which include expiry.
	differs, outdated map[string][]string
	// altered are, by machine, the fields that differ from the spec that the
	// machine was created from.
	altered map[string][]string
	// unapplied are settings that are not carried out.
	unapplied []unapplied
	// lifetime is the lifetime of the certificates of a new machine.
	lifetime time.Duration
	// transferFailed are the members of etcd whose leadership transfer failed.
	transferFailed map[uint64]bool
	// lock is the state of the init lock.
	lock initlock.State
	// roles are the roles in the machines' bootstrap data, where it was read.
	roles map[string]plan.Role
	// inGrace are nodes without a Machine that have not been down for long.
	inGrace sets.Set[string]
	// workload is the observed state of the workload cluster.
	workload facts.Cluster

	certificates certificatesState
	// initialized is true if the initialization is recorded.
	initialized bool
	// externalProblems are the problems of external etcd, for users.
	externalProblems []string
	// waiting is why the next step waits, for users.
	waiting string
	// blocked is why a missing machine cannot be created.
	blocked string
	// decision is the last decision; its action is empty if there is none.
	decision plan.Decision
	// joinBlocked is why a machine created now could not join, for users.
	joinBlocked string
	// upgradeWaits is why an upgrade waits for a snapshot, for users.
	upgradeWaits string
	// failures are errors that block no later step.
	failures []error
	// deleting is why a deletion waits.
	deleting string
	// again is when to reconcile again without an event; 0 means never.
	again time.Duration
}

// certificatesState is the state of the cluster's certificates.
type certificatesState struct {
	known bool
	err   error
	// blocksJoinsOnly is true if err blocks only machines that have not joined yet: the
	// nodes of a running cluster have their certificates.
	blocksJoinsOnly bool
}

// blocksAll reports whether nothing continues before the user fixes the
// certificates.
func (c certificatesState) blocksAll() bool { return c.err != nil && !c.blocksJoinsOnly }

// key returns the key of the cluster.
func (s *scope) key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: s.clusterName}
}

// owner returns the owner reference for objects of the control plane.
func (s *scope) owner() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.controlPlane, controlplanev1.GroupVersion.WithKind(kind))
}

// requeueAfter requests another reconcile after d at the latest.
func (s *scope) requeueAfter(d time.Duration) {
	if d > 0 && (s.again == 0 || d < s.again) {
		s.again = d
	}
}

// sorted returns the machines by name.
func (s *scope) sorted() []*clusterv1.Machine {
	return sortedMachines(s.machines)
}

// sortedMachines returns machines by name.
func sortedMachines(machines collections.Machines) []*clusterv1.Machine {
	sorted := machines.UnsortedList()
	slices.SortFunc(sorted, func(a, b *clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}

// externalEtcd reports whether the control plane uses an external etcd.
func externalEtcd(s *scope) bool { return len(s.controlPlane.Spec.Etcd.External.Endpoints) > 0 }

// unreachable reports whether the API server is unreachable and the cause is not
// known to be etcd's quorum.
func (s *scope) unreachable() bool {
	return !s.workload.Answers && (s.workload.Etcd == nil || s.workload.Etcd.Quorum())
}

// pending reports whether a condition of an initialized workload cluster stays
// unchanged: the cluster was not probed yet, and a restart of this process must
// not cause an alert.
func (s *scope) pending(condition string) bool {
	return s.workload.Pending && ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false) &&
		conditions.Has(s.controlPlane, condition)
}

// parent returns the owner reference of an object that a machine will own: it
// protects the object until the machine becomes its owner, and deletes it with
// the control plane if that never happens.
func (s *scope) parent() metav1.OwnerReference {
	owner := s.owner()
	return metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}
