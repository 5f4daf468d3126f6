package parts

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25"
)

// Session is the part of a session with a vCenter that a worker uses.
type Session interface {
	// Call and CallREST send requests, and log in again if necessary.
	Call(ctx context.Context, request func(context.Context, *vim25.Client) error) error
	CallREST(ctx context.Context, requests func(context.Context, *rest.Client) error) error
	Server() string
	// Done is closed when the session has ended.
	Done() <-chan struct{}
}

// batches collects jobs whose requests are sent together. It has one worker for
// each key that has jobs.
type batches[K, J comparable] struct {
	// delay is the time for which jobs are collected. All workers end with done.
	delay time.Duration
	done  func() <-chan struct{}
	// process executes jobs, and drop is called instead after done.
	process func(K, []J)
	drop    func(K, []J)

	mu sync.Mutex
	// queued are the jobs that wait, by the keys that have a worker.
	queued map[K]map[J]bool
}

// add queues a job.
func (b *batches[K, J]) add(key K, job J) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued == nil {
		b.queued = map[K]map[J]bool{}
	}
	if b.queued[key] == nil {
		b.queued[key] = map[J]bool{}
		go b.run(key)
	}
	b.queued[key][job] = true
}

// run executes the jobs of a key until there are none.
func (b *batches[K, J]) run(key K) {
	for {
		execute := b.process
		select {
		case <-time.After(b.delay):
		case <-b.done():
			execute = b.drop
		}
		jobs := b.take(key)
		if len(jobs) == 0 {
			return
		}
		execute(key, jobs)
	}
}

// take returns the queued jobs. If there are none, the worker ends.
func (b *batches[K, J]) take(key K) []J {
	b.mu.Lock()
	defer b.mu.Unlock()
	jobs := slices.Collect(maps.Keys(b.queued[key]))
	if len(jobs) == 0 {
		delete(b.queued, key)
	} else {
		b.queued[key] = map[J]bool{}
	}
	return jobs
}
