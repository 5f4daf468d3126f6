package loop

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NewRateLimiter returns a rate limiter whose delay doubles with each failure
// from first to last, in the units of time.Duration. A failure while the delay
// of the one before has not passed, in a reconcile that an event caused, does not
// count: it gets the rest of that delay. Otherwise a few events in a second would
// cause a delay of minutes.
func NewRateLimiter[T comparable](first, last time.Duration) workqueue.TypedRateLimiter[T] {
	return &rateLimiter[T]{
		TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, last),
		until:            map[T]time.Time{}, now: time.Now,
	}
}

type rateLimiter[T comparable] struct {
	workqueue.TypedRateLimiter[T]
	now func() time.Time

	mu    sync.Mutex
	until map[T]time.Time
}

// When returns in how long item is to be tried again.
func (l *rateLimiter[T]) When(item T) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if left := l.until[item].Sub(now); left > 0 {
		return left
	}
	delay := l.TypedRateLimiter.When(item)
	l.until[item] = now.Add(delay)
	return delay
}

// Forget drops the failures of item.
func (l *rateLimiter[T]) Forget(item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, item)
	l.TypedRateLimiter.Forget(item)
}
