package machine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// retries spaces out attempts at an action that fails. The work queue cannot: an action that is
// accepted and fails later is a success for the queue, and any event bypasses its backoff. A restart
// clears everything, which only makes the next attempt earlier.
type retries struct {
	reconcile.Memory[types.NamespacedName, attempt]
}

// attempt is the last failure of the due action.
type attempt struct {
	action action
	err    error
	count  int
	// notBefore is the earliest time of the next attempt. tried reports whether it was made.
	notBefore time.Time
	tried     bool
}

// failed records a failure and reports whether it is new: a driver may return the same failure until
// the action is tried again.
func (r *retries) failed(key types.NamespacedName, do action, err error) bool {
	a, _ := r.Get(key)
	if a.action == do && !a.tried {
		return false
	}
	if a.action != do {
		a = attempt{action: do}
	}
	delay := min(reconcile.MinDelay<<min(a.count, 16), reconcile.MaxDelay)
	r.Set(key, attempt{action: do, err: err, count: a.count + 1, notBefore: time.Now().Add(delay)})
	return true
}

// lastFailure returns the failure of the last attempt at the due action, if there was one. While the
// VM is busy, the next attempt may be under way. Any other due action means that the failure was
// fixed.
func (r *retries) lastFailure(key types.NamespacedName, due action, busy bool) error {
	a, _ := r.Get(key)
	if due != a.action && !busy {
		r.Forget(key)
		return nil
	}
	return a.err
}

// tried records that the action was attempted again.
func (r *retries) tried(key types.NamespacedName) {
	if a, known := r.Get(key); known {
		a.tried = true
		r.Set(key, a)
	}
}

// delay returns the time until the action may be tried again.
func (r *retries) delay(key types.NamespacedName) time.Duration {
	a, _ := r.Get(key)
	return time.Until(a.notBefore)
}
