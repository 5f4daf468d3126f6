package flux

import (
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// maxOutage is how long Flux keeps trying to reach a workload cluster. Each
// attempt holds one of Flux' few workers until it times out.
const maxOutage = 30 * time.Minute

// Outages remembers since when workload clusters have been unreachable, or something else has failed. The
// time starts again when the manager restarts.
type Outages[K comparable] struct {
	reconcile.Memory[K, time.Time]
}

// Update returns how long it has failed.
func (o *Outages[K]) Update(key K, failed bool, now time.Time) time.Duration {
	if !failed {
		o.Forget(key)
		return 0
	}
	since, known := o.Get(key)
	if !known {
		since = now
		o.Set(key, since)
	}
	return now.Sub(since)
}
