package loop

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// MinDelay is the wait before a failed step is tried again for the first
	// time; each later wait is twice as long.
	MinDelay = time.Second
	// MaxDelay is the longest wait: how long a mended cause can go unnoticed
	// when nothing tells that it was mended.
	MaxDelay = time.Minute

	// Net is how soon an object that waits for a push is looked at without
	// one. A look reads memory only, so it costs the hypervisor nothing.
	Net = 30 * time.Second

	// LineNet is the same for an object that waits for its turn. A look asks
	// the API server for what a VM is made with, and hundreds may wait.
	LineNet = 2 * time.Minute

	// timeout keeps one call that hangs from holding a worker for ever.
	timeout = time.Minute
)

// Options completes options with the retry behaviour of infrastructure
// reconcilers. What the caller has set stays.
func Options(options controller.Options) controller.Options {
	if options.RateLimiter == nil {
		options.RateLimiter = NewRateLimiter[reconcile.Request](MinDelay, MaxDelay)
	}
	if options.ReconciliationTimeout == 0 {
		options.ReconciliationTimeout = timeout
	}
	return options
}
