package reconcile

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NewRateLimiter returns a rate limiter whose delay doubles with each failure
// from first to last, in the units of time.Duration. If an event causes a
// reconcile that fails before the previous delay has ended, the failure is not
// counted: it gets the rest of that delay. Otherwise a few events in a second
// would cause a delay of minutes.
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

// When returns the delay until the next attempt for item.
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

// Forget resets the failures of item.
func (l *rateLimiter[T]) Forget(item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, item)
	l.TypedRateLimiter.Forget(item)
}
