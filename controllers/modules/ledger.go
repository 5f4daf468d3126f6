package modules

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// key names an object of the management cluster.
type key = types.NamespacedName

// report is the state of the modules of a set on one Cluster.
type report struct {
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
	// refused is a revision that cannot be rendered for the Cluster. It is not set if the desired
	// revision can.
	refused string
}

// ledger holds the rollout state that the two reconcilers exchange. All of it is determined again
// after a restart.
type ledger struct {
	mu   sync.Mutex
	sets map[key]*entry
}

// entry is the rollout state of one set.
type entry struct {
	// granted are the Clusters that may take revision, each with the time of the grant.
	revision string
	granted  map[key]time.Time
	reports  map[key]report
}

func (l *ledger) entry(set key) *entry {
	if l.sets == nil {
		l.sets = map[key]*entry{}
	}
	e := l.sets[set]
	if e == nil {
		e = &entry{reports: map[key]report{}}
		l.sets[set] = e
	}
	return e
}

// report stores the state of a Cluster and returns whether it has changed.
func (l *ledger) report(set, cluster key, now report) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(set)
	was, known := e.reports[cluster]
	e.reports[cluster] = now
	return !known || was != now
}

// drop removes a Cluster that the set no longer selects, and returns whether it was known.
func (l *ledger) drop(set, cluster key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(set)
	_, known := e.reports[cluster]
	delete(e.reports, cluster)
	delete(e.granted, cluster)
	return known
}

// forget drops a set.
func (l *ledger) forget(set key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sets, set)
}

// get returns the report of a Cluster.
func (l *ledger) get(set, cluster key) (report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got, ok := l.entry(set).reports[cluster]
	return got, ok
}

// grant stores a plan and returns the Clusters that it newly allows to continue.
func (l *ledger) grant(set key, revision string, plan modules.Rollout, now time.Time) []key {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(set)
	var news []key
	granted := map[key]time.Time{}
	for cluster := range plan.Granted {
		since, already := e.granted[cluster]
		if e.revision != revision || !already {
			since, news = now, append(news, cluster)
		}
		granted[cluster] = since
	}
	e.revision, e.granted = revision, granted
	return news
}

// mayTake reports whether a Cluster may take a revision, and since when.
func (l *ledger) mayTake(set, cluster key, revision string) (since time.Time, may bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(set)
	if e.revision != revision {
		return time.Time{}, false
	}
	since, may = e.granted[cluster]
	return since, may
}
