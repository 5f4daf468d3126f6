package flux

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// maxOutage is how long Flux keeps trying to reach a workload cluster. Each
// attempt holds one of Flux' few workers until it times out.
const maxOutage = 30 * time.Minute

// Outages remembers since when workload clusters have been unreachable, or something else about a Cluster
// has failed. The time starts again when the manager restarts.
type Outages struct {
	reconcile.Memory[client.ObjectKey, time.Time]
}

// Update returns how long it has failed for a Cluster.
func (o *Outages) Update(cluster client.ObjectKey, failed bool, now time.Time) time.Duration {
	if !failed {
		o.Forget(cluster)
		return 0
	}
	since, known := o.Get(cluster)
	if !known {
		since = now
		o.Set(cluster, since)
	}
	return now.Sub(since)
}
