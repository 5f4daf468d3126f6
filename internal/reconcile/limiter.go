package reconcile

import (
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
		now:              time.Now,
	}
}

type rateLimiter[T comparable] struct {
	workqueue.TypedRateLimiter[T]
	now   func() time.Time
	until Memory[T, time.Time]
}

// When returns the delay until the next attempt for item.
func (l *rateLimiter[T]) When(item T) (delay time.Duration) {
	l.until.Update(item, func(until *time.Time) {
		now := l.now()
		if delay = until.Sub(now); delay <= 0 {
			delay = l.TypedRateLimiter.When(item)
			*until = now.Add(delay)
		}
	})
	return delay
}

// Forget resets the failures of item.
func (l *rateLimiter[T]) Forget(item T) {
	l.until.Forget(item)
	l.TypedRateLimiter.Forget(item)
}
