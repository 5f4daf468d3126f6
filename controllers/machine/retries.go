package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// retries spaces out attempts at an action that fails. The work queue cannot:
// an action that is accepted and fails later looks like success to it, and any
// event passes its back-off. A restart forgets everything, which only brings
// the next attempt forward.
type retries struct {
	mu       sync.Mutex
	attempts map[types.NamespacedName]attempt
}

// attempt is the last failure of the action that is due.
type attempt struct {
	do    action
	err   error
	count int
	// again is when it may be tried again, and tried whether it was.
	again time.Time
	tried bool
}

// failed notes a failure and reports whether it is news: a driver may tell of
// one until the action is tried again.
func (r *retries) failed(key types.NamespacedName, do action, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, known := r.attempts[key]
	if known && a.do == do && !a.tried {
		return false
	}
	if a.do != do {
		a = attempt{do: do}
	}
	delay := min(loop.MinDelay<<min(a.count, 16), loop.MaxDelay)
	a.err, a.count, a.again, a.tried = err, a.count+1, time.Now().Add(delay), false
	if r.attempts == nil {
		r.attempts = map[types.NamespacedName]attempt{}
	}
	r.attempts[key] = a
	return true
}

// last returns how the last attempt at what is due failed, if it did. While
// the VM is busy the next attempt may be under way; any other action means
// that the failure was mended.
func (r *retries) last(key types.NamespacedName, due action, busy bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, known := r.attempts[key]
	if known && due != a.do && !busy {
		delete(r.attempts, key)
		return nil
	}
	return a.err
}

// tried notes that the action was attempted again.
func (r *retries) tried(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, known := r.attempts[key]; known {
		a.tried = true
		r.attempts[key] = a
	}
}

// delay returns how long to wait before the action may be tried again.
func (r *retries) delay(key types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.attempts[key].again)
}

func (r *retries) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attempts, key)
}
