package reconcile

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const (
	// A failed reconcile is retried after firstRetry, and each later delay is
	// twice as long. lastRetry is low, because a user who fixes the cause waits
	// for the result.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second

	// MinDelay is the delay before a request that a hypervisor rejected is sent
	// again; each later delay is twice as long.
	MinDelay = time.Second
	// MaxDelay is the longest delay: if no event reports that the cause is
	// fixed, the controller notices it within this time.
	MaxDelay = time.Minute

	// PollInterval is the poll interval of an object that waits for an event. A poll
	// reads memory only, so it costs the hypervisor nothing.
	PollInterval = 30 * time.Second

	// QueuedPollInterval is the poll interval of an object in the creation queue. A poll
	// reads the inputs of the VM from the API server, and hundreds of objects
	// may be queued.
	QueuedPollInterval = 2 * time.Minute

	// timeout keeps a hanging call from blocking a worker indefinitely.
	timeout = time.Minute
)

// RateLimiter returns the rate limiter of all controllers, except for those of
// snapshots.
func RateLimiter() workqueue.TypedRateLimiter[ctrl.Request] {
	return NewRateLimiter[ctrl.Request](firstRetry, lastRetry)
}

// Options sets the retry behavior of reconcilers in options. Options
// that the caller has set are not changed.
func Options(options controller.Options) controller.Options {
	if options.RateLimiter == nil {
		options.RateLimiter = RateLimiter()
	}
	if options.ReconciliationTimeout == 0 {
		options.ReconciliationTimeout = timeout
	}
	return options
}
