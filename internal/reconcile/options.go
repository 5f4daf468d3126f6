package reconcile

import (
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const (
	// MinDelay is the delay before the first retry of a failed step; each later
	// delay is twice as long.
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

// Options sets the retry behavior of infrastructure reconcilers in options.
// Options that the caller has set are not changed.
func Options(options controller.Options) controller.Options {
	if options.RateLimiter == nil {
		options.RateLimiter = NewRateLimiter[ctrl.Request](MinDelay, MaxDelay)
	}
	if options.ReconciliationTimeout == 0 {
		options.ReconciliationTimeout = timeout
	}
	return options
}
