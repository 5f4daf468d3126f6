package sessions

import (
	"sync"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Feed is an unbounded queue of keys without duplicates. Add never waits for
// the reader.
type Feed struct {
	mu      sync.Mutex
	queued  map[hypervisor.Key]struct{}
	order   []hypervisor.Key
	wake    chan struct{}
	out     chan hypervisor.Key
	started sync.Once
}

// NewFeed returns an empty queue.
func NewFeed() *Feed {
	return &Feed{queued: map[hypervisor.Key]struct{}{}, wake: make(chan struct{}, 1), out: make(chan hypervisor.Key)}
}

// Add queues keys that are not queued yet.
func (f *Feed) Add(keys ...hypervisor.Key) {
	f.mu.Lock()
	for _, k := range keys {
		if _, ok := f.queued[k]; !ok {
			f.queued[k] = struct{}{}
			f.order = append(f.order, k)
		}
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Keys returns the channel of the queue. It is never closed.
func (f *Feed) Keys() <-chan hypervisor.Key {
	f.started.Do(func() { go f.pump() })
	return f.out
}

func (f *Feed) pump() {
	for range f.wake {
		for {
			k, ok := f.next()
			if !ok {
				break
			}
			f.out <- k
		}
	}
}

// next removes the oldest key. It is removed before it is delivered, so that a
// change during the delivery is queued again.
func (f *Feed) next() (hypervisor.Key, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.order) == 0 {
		return hypervisor.Key{}, false
	}
	k := f.order[0]
	f.order = f.order[1:]
	delete(f.queued, k)
	return k, true
}
