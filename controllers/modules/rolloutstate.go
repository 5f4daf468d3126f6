package modules

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// key names an object of the management cluster.
type key = types.NamespacedName

// clusterReport is the state of the modules of a set on one Cluster.
type clusterReport struct {
	// revision is the revision of the modules. It is not set if there are none.
	revision string
	since    time.Time
	// ready means that all modules are ready at that revision. notReady is the number of the others.
	ready    bool
	notReady int
	// reachable means that the workload cluster can take a change.
	reachable bool
	// paused means that the Cluster is not reconciled.
	paused bool
	// waiting means that the first modules are written after those of another set.
	waiting bool
	// pending are the sources of modules that still have to be written.
	pending []key
	// unrenderable is a revision that cannot be rendered for the Cluster. It is not set if the desired
	// revision can.
	unrenderable string
}

// rolloutState holds the rollout state that the two reconcilers exchange. All of it is determined again
// after a restart.
type rolloutState struct {
	reconcile.Memory[key, setRollout]
}

// setRollout is the rollout state of one set.
type setRollout struct {
	// granted are the Clusters that may take revision, each with the time of the grant.
	revision string
	granted  map[key]time.Time
	reports  map[key]clusterReport
}

// setReport stores the state of a Cluster and returns whether it has changed.
func (l *rolloutState) setReport(set, cluster key, now clusterReport) (changed bool) {
	l.Update(set, func(e *setRollout) {
		was, known := e.reports[cluster]
		changed = !known || !reflect.DeepEqual(was, now)
		if e.reports == nil {
			e.reports = map[key]clusterReport{}
		}
		e.reports[cluster] = now
	})
	return changed
}

// removeCluster removes a Cluster that the set no longer selects, and returns whether it was known.
func (l *rolloutState) removeCluster(set, cluster key) (known bool) {
	l.Update(set, func(e *setRollout) {
		_, known = e.reports[cluster]
		delete(e.reports, cluster)
		delete(e.granted, cluster)
	})
	return known
}

// getReport returns the report of a Cluster.
func (l *rolloutState) getReport(set, cluster key) (got clusterReport, known bool) {
	l.Update(set, func(e *setRollout) { got, known = e.reports[cluster] })
	return got, known
}

// setGrants stores a plan and returns the Clusters that it newly allows to continue.
func (l *rolloutState) setGrants(set key, revision string, plan modules.Rollout, now time.Time) (added []key) {
	l.Update(set, func(e *setRollout) {
		granted := map[key]time.Time{}
		for cluster := range plan.Granted {
			since, already := e.granted[cluster]
			if e.revision != revision || !already {
				since, added = now, append(added, cluster)
			}
			granted[cluster] = since
		}
		e.revision, e.granted = revision, granted
	})
	return added
}

// isGranted reports whether a Cluster may take a revision, and since when.
func (l *rolloutState) isGranted(set, cluster key, revision string) (since time.Time, may bool) {
	l.Update(set, func(e *setRollout) {
		if e.revision == revision {
			since, may = e.granted[cluster]
		}
	})
	return since, may
}
