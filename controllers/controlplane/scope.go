package controlplane

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// scope is what one reconcile knows. Fields are filled from top to bottom.
type scope struct {
	// at is when it was observed.
	at           time.Time
	controlPlane *controlplanev1.NovaControlPlane
	// cluster is nil if it is gone, which only a deletion goes on without.
	cluster *clusterv1.Cluster
	// clusterName is known even then.
	clusterName string

	// fenced is the reason why another management cluster acts, if one does.
	fenced error

	// machines are those that the control plane owns.
	machines collections.Machines
	// strangers are control plane machines of the cluster that somebody else
	// owns.
	strangers sets.Set[string]
	// infra and configs are what belongs to the machines, by machine. Only
	// the metadata of infra is known.
	infra   map[string]*metav1.PartialObjectMetadata
	configs map[string]*bootstrapv1.NovaConfig
	// differs says, by machine, in what it was made otherwise than the spec
	// says, and outdated why it is to be replaced, which time can bring too.
	differs, outdated map[string][]string
	// altered names, by machine, the fields that differ from the spec that the
	// machine was created from.
	altered map[string][]string
	// unapplied are settings that are not carried out.
	unapplied []unapplied
	// lifetime is how long the certificates of a new machine last.
	lifetime time.Duration
	// clings are the members of etcd whose leadership could not be moved.
	clings map[uint64]bool
	// lock is who initialises, or was to.
	lock initlock.State
	// roles are what the machines' bootstrap data says, where it was read.
	roles map[string]plan.Role
	// spared are nodes without a Machine that have not been down for long.
	spared sets.Set[string]
	// tenant is what the tenant said of itself.
	tenant Facts

	certificates certificatesState
	// initialized is what is known before this reconcile looked.
	initialized bool
	// externalProblems are what keeps external etcd from being healthy, for
	// people.
	externalProblems []string
	// waiting is what the next step waits for, for people.
	waiting string
	// blocked is why no machine can be created although one is missing.
	blocked string
	// decision is what was decided last; its action is empty if nothing was.
	decision plan.Decision
	// noJoin is why a machine that is made now could not join, for people.
	noJoin string
	// upgradeWaits is why an upgrade waits for a snapshot, for people.
	upgradeWaits string
	// failures are those that keep no later step.
	failures []error
	// deleting is what a deletion waits for.
	deleting string
	// again is when to look again without being told; 0 means never.
	again time.Duration
}

// certificatesState is what is known of the cluster's certificates.
type certificatesState struct {
	known bool
	err   error
	// runsOn is true if err blocks only machines that are still to join: the
	// nodes of a running cluster have their certificates.
	runsOn bool
}

// stop reports whether nothing goes on before somebody mends them.
func (c certificatesState) stop() bool { return c.err != nil && !c.runsOn }

// key is the cluster's.
func (s *scope) key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: s.clusterName}
}

// owner is the owner reference of what the control plane owns.
func (s *scope) owner() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.controlPlane, controlplanev1.GroupVersion.WithKind(kind))
}

// lookAgain asks for another reconcile after d at the latest.
func (s *scope) lookAgain(d time.Duration) {
	if d > 0 && (s.again == 0 || d < s.again) {
		s.again = d
	}
}

// sorted returns the machines by name.
func (s *scope) sorted() []*clusterv1.Machine {
	return sortedMachines(s.machines)
}
