package resolve

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25"
	"golang.org/x/sync/singleflight"

	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// MaxAge is the longest time for which a result is used that changes without
// a notification.
const MaxAge = 5 * time.Minute

// table caches results of one kind, with at most one request at a time for each
// key.
type table[K comparable, V any] struct {
	// ages means that results change without a notification, so they are read
	// again after MaxAge.
	ages bool

	mu      sync.Mutex
	results map[K]result[V]
	// flights are the requests since all results were dropped the last time.
	flights *singleflight.Group
}

// result is a cached result and the time at which vCenter returned it.
type result[V any] struct {
	value V
	read  time.Time
}

// get returns the result for key, and reads it if it is not cached. If one
// caller gives up, the others still get the result.
func (t *table[K, V]) get(ctx context.Context, c *Cache, key K, read func(context.Context, *vim25.Client) (V, error)) (V, error) {
	var none V
	t.mu.Lock()
	if t.flights == nil {
		t.flights, t.results = &singleflight.Group{}, map[K]result[V]{}
	}
	found, ok := t.results[key]
	flights := t.flights
	t.mu.Unlock()
	if ok && (!t.ages || c.Now().Sub(found.read) <= MaxAge) {
		return found.value, nil
	}
	done := flights.DoChan(fmt.Sprintf("%#v", key), func() (any, error) {
		var value V
		// Each request has its own timeout.
		err := c.session.Call(context.WithoutCancel(ctx), func(ctx context.Context, c *vim25.Client) (err error) {
			value, err = read(ctx, c)
			return err
		})
		if err != nil {
			return nil, err
		}
		t.keep(flights, key, result[V]{value: value, read: c.Now()})
		return value, nil
	})
	select {
	case res := <-done:
		if res.Err != nil {
			return none, vcenter.Classify(c.session.Server(), res.Err)
		}
		value, _ := res.Val.(V)
		return value, nil
	case <-ctx.Done():
		return none, fmt.Errorf("resolving names in vCenter: %w", ctx.Err())
	}
}

// keep keeps the result of a request, unless all results were dropped after it
// was sent.
func (t *table[K, V]) keep(flights *singleflight.Group, key K, r result[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flights == flights {
		t.results[key] = r
	}
}

// drop drops the result for key.
func (t *table[K, V]) drop(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.results, key)
}

// dropAll drops all results.
func (t *table[K, V]) dropAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flights, t.results = nil, nil
}
