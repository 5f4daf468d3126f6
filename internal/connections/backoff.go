package connections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

const (
	// eagerPeriod is for how long a cluster that does not respond is retried at
	// the shortest interval: most such clusters are starting.
	eagerPeriod = time.Minute
	// workerShare bounds the part of a worker that one cluster occupies after
	// that: the next attempt is workerShare times the duration of the last one
	// later.
	workerShare = 5
	// maxDelay bounds the delay between two attempts.
	maxDelay = 5 * time.Minute
	// idlePeriod is how long after its last attempt a cluster is forgotten: it is
	// connected or deleted.
	idlePeriod = 2 * maxDelay
	// minSkipInterval is the minimum interval between two attempts that a change
	// of the cluster allows.
	minSkipInterval = time.Minute
)

// delays are the times between two attempts after eagerPeriod.
var delays = []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second}

// ErrDelayed is returned instead of a kubeconfig while the next attempt to
// connect is not due.
var ErrDelayed = errors.New("the workload cluster does not answer: the next attempt to connect is delayed")

// backoff is the reader that the cluster cache reads kubeconfigs with. The
// cluster cache reads one at the beginning of each attempt to connect and at no
// other time, so a read that fails is an attempt that costs nothing.
type backoff struct {
	client.Reader

	// interval is how long the cluster cache waits after an attempt.
	interval time.Duration
	now      func() time.Time
	// initialized reports whether the control plane of a cluster is initialized.
	initialized func(context.Context, client.ObjectKey) bool
	// connected returns when a cluster last answered the cluster cache.
	connected func(context.Context, client.ObjectKey) time.Time

	attempts reconcile.Memory[client.ObjectKey, attempts]
}

// attempts is the record of the attempts to connect to one cluster.
type attempts struct {
	// first and last are when the first and the last attempt began.
	first, last time.Time
	// ended is when the last one ended. Zero while that is not known.
	ended time.Time
	// step is the place of the next delay in delays.
	step int
	// version changes with the kubeconfig and once with the control plane.
	version string
	// skipped is when a change of the cluster last allowed an attempt.
	skipped time.Time
	// changed is true if something changed since the last attempt.
	changed bool
}

// Get implements client.Reader.
func (b *backoff) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := b.Reader.Get(ctx, key, o, options...); err != nil {
		return err
	}
	name, ok := strings.CutSuffix(key.Name, "-"+string(secret.Kubeconfig))
	if !ok {
		return nil
	}
	cluster := client.ObjectKey{Namespace: key.Namespace, Name: name}
	version := fmt.Sprintf("%s/%s/%t", o.GetUID(), o.GetResourceVersion(), b.initialized(ctx, cluster))
	if !b.allow(cluster, version, b.connected(ctx, cluster)) {
		return ErrDelayed
	}
	return nil
}

func (b *backoff) allow(cluster client.ObjectKey, version string, connected time.Time) bool {
	now := b.now()
	b.forget(now)
	var allowed bool
	b.attempts.Update(cluster, func(a *attempts) {
		if connected.After(a.last) {
			*a = attempts{} // the last attempt succeeded
		}
		*a, allowed = decide(*a, version, now, b.interval)
	})
	return allowed
}

// forget drops clusters that are connected or deleted.
func (b *backoff) forget(now time.Time) {
	b.attempts.ForgetIf(func(_ client.ObjectKey, a attempts) bool { return now.Sub(a.last) > idlePeriod })
}

// answered records that a cluster has responded on another connection.
func (b *backoff) answered(cluster client.ObjectKey) {
	// For a cluster without attempts this changes nothing: its next attempt is the first.
	b.attempts.Update(cluster, func(a *attempts) { a.changed = true })
}

// decide reports whether an attempt to connect is allowed, and returns the new
// record of attempts.
func decide(a attempts, version string, now time.Time, interval time.Duration) (attempts, bool) {
	if a.last.IsZero() {
		return attempts{first: now, last: now, version: version}, true
	}
	if a.ended.IsZero() {
		// The cluster cache retries this long after the attempt ended.
		a.ended = now.Add(-interval)
		if a.ended.Before(a.last) {
			a.ended = a.last
		}
	}
	a.changed = a.changed || a.version != version
	a.version = version
	skips := a.changed && now.Sub(a.skipped) >= minSkipInterval
	if now.Sub(a.first) >= eagerPeriod && !skips {
		wait := max(delays[min(a.step, len(delays)-1)], workerShare*a.ended.Sub(a.last))
		if now.Before(a.ended.Add(min(wait, maxDelay))) {
			return a, false
		}
		a.step++
	}
	if skips {
		a.skipped = now
	}
	a.last, a.ended, a.changed = now, time.Time{}, false
	return a, true
}
