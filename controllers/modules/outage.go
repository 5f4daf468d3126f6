package modules

import (
	"context"
	"fmt"
	"time"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// maxOutage is how long Flux keeps trying to reach a workload cluster. Each
// attempt holds one of Flux' few workers until it times out.
const maxOutage = 30 * time.Minute

// outages remembers since when workload clusters have been unreachable. The time starts again when the
// manager restarts.
type outages struct {
	reconcile.Memory[key, time.Time]
}

// update returns how long a workload cluster has been unreachable.
func (o *outages) update(cluster key, unreachable bool, now time.Time) time.Duration {
	if !unreachable {
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

// suspend makes Flux stop connecting to a workload cluster that has been unreachable for a long time.
func (r *ClusterReconciler) suspend(ctx context.Context, d *rolloutTarget) error {
	if d.scope.outage < maxOutage {
		return nil
	}
	for _, p := range d.objects {
		if p.management || p.suspended || !p.object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := r.patch(ctx, p, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}},"spec":{"suspend":true}}`, addonsv1.UnreachableAnnotation)); err != nil {
			return fmt.Errorf("suspending module %s: %w", p.module, err)
		}
		p.suspended = true
	}
	return nil
}

// resume clears the suspension that suspend set.
func (r *ClusterReconciler) resume(ctx context.Context, d *rolloutTarget) error {
	for _, p := range d.objects {
		if p.object.GetAnnotations()[addonsv1.UnreachableAnnotation] == "" || !p.object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := r.patch(ctx, p, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"suspend":null}}`, addonsv1.UnreachableAnnotation)); err != nil {
			return fmt.Errorf("resuming module %s: %w", p.module, err)
		}
		p.suspended = false
	}
	return nil
}
