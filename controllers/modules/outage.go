package modules

import (
	"context"
	"fmt"
	"sync"
	"time"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// maxOutage is how long Flux keeps trying to reach a workload cluster. Each
// attempt holds one of Flux' few workers until it times out.
const maxOutage = 30 * time.Minute

// outages remembers since when workload clusters have been unreachable. The time starts again when the
// manager restarts.
type outages struct {
	mu    sync.Mutex
	since map[key]time.Time
}

// update returns how long a workload cluster has been unreachable.
func (o *outages) update(cluster key, unreachable bool, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !unreachable {
		delete(o.since, cluster)
		return 0
	}
	if o.since == nil {
		o.since = map[key]time.Time{}
	}
	if _, ok := o.since[cluster]; !ok {
		o.since[cluster] = now
	}
	return now.Sub(o.since[cluster])
}

func (o *outages) forget(cluster key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.since, cluster)
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
