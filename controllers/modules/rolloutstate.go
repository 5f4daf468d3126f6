package modules

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	// unrenderable is a revision that cannot be rendered for the Cluster. It is not set if the desired
	// revision can.
	unrenderable string
}

// rolloutState holds the rollout state that the two reconcilers exchange. All of it is determined again
// after a restart.
type rolloutState struct {
	mu   sync.Mutex
	sets map[key]*setRollout
}

// setRollout is the rollout state of one set.
type setRollout struct {
	// granted are the Clusters that may take revision, each with the time of the grant.
	revision string
	granted  map[key]time.Time
	reports  map[key]clusterReport
}

func (l *rolloutState) stateOf(set key) *setRollout {
	if l.sets == nil {
		l.sets = map[key]*setRollout{}
	}
	e := l.sets[set]
	if e == nil {
		e = &setRollout{reports: map[key]clusterReport{}}
		l.sets[set] = e
	}
	return e
}

// setReport stores the state of a Cluster and returns whether it has changed.
func (l *rolloutState) setReport(set, cluster key, now clusterReport) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.stateOf(set)
	was, known := e.reports[cluster]
	e.reports[cluster] = now
	return !known || was != now
}

// removeCluster removes a Cluster that the set no longer selects, and returns whether it was known.
func (l *rolloutState) removeCluster(set, cluster key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.stateOf(set)
	_, known := e.reports[cluster]
	delete(e.reports, cluster)
	delete(e.granted, cluster)
	return known
}

// forget drops a set.
func (l *rolloutState) forget(set key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sets, set)
}

// getReport returns the report of a Cluster.
func (l *rolloutState) getReport(set, cluster key) (clusterReport, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got, ok := l.stateOf(set).reports[cluster]
	return got, ok
}

// setGrants stores a plan and returns the Clusters that it newly allows to continue.
func (l *rolloutState) setGrants(set key, revision string, plan modules.Rollout, now time.Time) []key {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.stateOf(set)
	var added []key
	granted := map[key]time.Time{}
	for cluster := range plan.Granted {
		since, already := e.granted[cluster]
		if e.revision != revision || !already {
			since, added = now, append(added, cluster)
		}
		granted[cluster] = since
	}
	e.revision, e.granted = revision, granted
	return added
}

// isGranted reports whether a Cluster may take a revision, and since when.
func (l *rolloutState) isGranted(set, cluster key, revision string) (since time.Time, may bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.stateOf(set)
	if e.revision != revision {
		return time.Time{}, false
	}
	since, may = e.granted[cluster]
	return since, may
}
