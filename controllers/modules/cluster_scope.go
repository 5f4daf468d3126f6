package modules

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// clusterScope is the state of a Cluster in one reconcile. Its fields are set from top to bottom.
type clusterScope struct {
	key key
	// cluster is nil when the Cluster is deleted.
	cluster *clusterv1.Cluster
	// objects are all Flux objects that were written for the Cluster, by set.
	objects map[key][]*flux.Object
	// sets are the existing sets, by key.
	sets map[key]*addonsv1.NovaModuleSet
	// dependencies are those between the sets.
	dependencies setDependencies
	// missingFlux names the Flux kinds that the management cluster does not serve. If it is set,
	// nothing was ever written.
	missingFlux string
	// unreachable is the reason why the workload cluster is unreachable. It is nil while the workload
	// cluster responds.
	unreachable error
	// outage is how long the workload cluster has been unreachable.
	outage time.Duration
	// draining is set while a Cluster that is being deleted has Machines.
	draining bool
	// requeueAfter is the delay until the next reconcile. Zero means that an event triggers it.
	requeueAfter time.Duration
}

func (s *clusterScope) isDeleted() bool {
	return s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero()
}

// paused reports whether the Cluster is paused.
func (s *clusterScope) paused() bool {
	return s.cluster != nil && annotations.IsPaused(s.cluster, s.cluster)
}

// requeueSoon requeues the Cluster when no event reports the state that it waits for.
func (s *clusterScope) requeueSoon() { s.requeueAfter = pollInterval }

// rolloutTarget is the rollout target: one set on one Cluster.
type rolloutTarget struct {
	scope *clusterScope
	key   key
	// set is nil when the set is deleted.
	set *addonsv1.NovaModuleSet
	// objects are all Flux objects that were written for the set on the Cluster.
	objects []*flux.Object
	// selection is whether the set applies to the Cluster.
	selection selection
	// notReady holds the reasons why modules are not ready, by name.
	notReady map[string]string
	// order lists the modules in notReady in their order.
	order []string
	// count is the number of enabled modules.
	count int
	// sources are the states of the sources that were written in this reconcile, by name.
	sources map[string]flux.FetchState
	// unfetched are the modules that are to be written and whose sources are not fetched yet, each with
	// the reason. firstUnfetched is the first of them.
	unfetched      map[string]string
	firstUnfetched string
	// pending are the sources of the modules that are not written at the revision of the Cluster yet.
	pending []key
	// factsFailure is why the facts of the Cluster are unreadable, if a removal needs them.
	factsFailure error
	// nameConflicts are the modules whose names are used by objects of another owner.
	nameConflicts map[string]bool
	// reason and message are the condition if it does not concern modules.
	reason, message string
	// unrenderable is the revision that cannot be rendered.
	unrenderable string
}

// setName returns the name of the set as shown on the Cluster.
func (d *rolloutTarget) setName() string {
	return modules.DisplayName(d.key.Namespace, d.key.Name, d.scope.key.Namespace)
}

// modeInput returns the relation between the set and the Cluster.
func (d *rolloutTarget) modeInput() modeInput {
	now := modeInput{
		clusterDeleted: d.scope.isDeleted(), paused: d.scope.paused(),
		setMissing: d.set == nil, selected: d.selection == selected,
	}
	if d.set != nil {
		now.setDeleting = !d.set.DeletionTimestamp.IsZero()
		now.setWithoutFinalizer = !controllerutil.ContainsFinalizer(d.set, addonsv1.Finalizer)
		now.suspended = ptr.Deref(d.set.Spec.Suspend, false)
	}
	return now
}

// addNotReady records why a module is not ready.
func (d *rolloutTarget) addNotReady(module, why string) {
	if d.notReady == nil {
		d.notReady = map[string]string{}
	}
	if _, ok := d.notReady[module]; !ok {
		d.order = append(d.order, module)
	}
	d.notReady[module] = why
}

// setNameConflict records that a module cannot be written, because another owner has a name that the
// module needs.
func (d *rolloutTarget) setNameConflict(m *modules.Module, name, by string) string {
	if d.reason == "" {
		d.reason = addonsv1.NameConflictReason
		d.message = fmt.Sprintf("Module %s cannot be written: %s is already used by %s", m.Name, name, by)
	}
	if d.nameConflicts == nil {
		d.nameConflicts = map[string]bool{}
	}
	d.nameConflicts[m.Name] = true
	d.scope.requeueSoon()
	return "Its name is already used"
}
