package access

import (
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// reading is a read of a workload cluster.
type reading struct {
	err error
	// uncached is true if it was read without the cluster cache: a success proves
	// that the API server answers.
	uncached bool
	// failingSince is since when the cluster cache cannot be read although the
	// workload cluster answers; zero if that is new.
	failingSince time.Time
}

// reachability is whether a workload cluster is reachable: it answers, it is
// unreachable since some time, it answers and cannot be read (the zero value), or
// nothing is known.
type reachability struct {
	answers, unknown bool
	unreachableSince time.Time
}

// reach returns whether a workload cluster is reachable. Only the health probe
// decides that it is unreachable: a connection may just have broken, and the
// cluster cache may have to reconnect. A failed read of a workload cluster that
// answers proves nothing for a limited time.
func reach(last probe.Result, read reading, now time.Time) reachability {
	grace := timelimits.Reconnect
	if read.uncached {
		grace = timelimits.Grace
	}
	switch {
	case read.uncached && read.err == nil:
		return reachability{answers: true}
	case !last.Known:
		return reachability{unknown: true}
	case !last.Answers:
		return reachability{unreachableSince: last.Since}
	case read.err == nil:
		return reachability{answers: true}
	}
	return reachability{unknown: read.failingSince.IsZero() || now.Sub(read.failingSince) < grace}
}
