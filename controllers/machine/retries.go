package machine

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// retries spaces out attempts at actions that fail. The work queue cannot: an action that is
// accepted and fails later is a success for the queue, and any event bypasses its backoff. A restart
// clears everything, which only makes the next attempt earlier.
type retries struct {
	reconcile.Memory[types.NamespacedName, attempts]
}

// attempts are the last failures of a machine's actions.
type attempts struct {
	byAction map[action]attempt
	// last is the action that failed last.
	last action
	// reported is the last failure that the driver reported.
	reported error
}

// attempt is the last failure of an action.
type attempt struct {
	err   error
	count int
	// notBefore is the earliest time of the next attempt. tried reports whether it was made.
	notBefore time.Time
	tried     bool
}

// failed records a failure and reports whether it is new: a driver may return the same failure until
// the action is tried again.
func (r *retries) failed(key types.NamespacedName, do action, err error) bool {
	isNew := true
	r.Update(key, func(s *attempts) {
		a, known := s.byAction[do]
		if isNew = !known || a.tried; !isNew {
			return
		}
		s.record(do, attempt{err: err, count: a.count})
	})
	return isNew
}

// reportedByDriver records a failure that the driver reports with its observation, and reports whether
// it is new. The driver reports the same failure until its next action begins, also while another
// action is due for the machine.
func (r *retries) reportedByDriver(key types.NamespacedName, do action, cause, err error) bool {
	isNew := true
	r.Update(key, func(s *attempts) {
		a, known := s.byAction[do]
		isNew = s.reported != cause || known && a.tried //nolint:errorlint // the same value
		if isNew || !known {
			s.record(do, attempt{err: err, count: a.count})
		}
		s.reported = cause
	})
	return isNew
}

// record records one more failure.
func (s *attempts) record(do action, a attempt) {
	if s.byAction == nil {
		s.byAction = map[action]attempt{}
	}
	delay := min(reconcile.MinDelay<<min(a.count, 16), reconcile.MaxDelay)
	s.byAction[do], s.last = attempt{err: a.err, count: a.count + 1, notBefore: time.Now().Add(delay)}, do
}

// lastFailure returns the failure of the last attempt at the due action, if there was one. While the
// VM is busy, the next attempt may be under way. Any other due action means that the failure was
// fixed, unless the action is one of those that are pending.
func (r *retries) lastFailure(key types.NamespacedName, due action, busy bool, pending ...action) error {
	s, _ := r.Get(key)
	if busy {
		return s.byAction[s.last].err
	}
	for do := range s.byAction {
		if do != due && !slices.Contains(pending, do) {
			r.Update(key, func(s *attempts) { delete(s.byAction, do) })
		}
	}
	return s.byAction[due].err
}

// firstFailure returns the failure of the first of some actions that failed.
func (r *retries) firstFailure(key types.NamespacedName, of []action) error {
	s, _ := r.Get(key)
	for _, do := range of {
		if err := s.byAction[do].err; err != nil {
			return err
		}
	}
	return nil
}

// tried records that an action was attempted again.
func (r *retries) tried(key types.NamespacedName, do action) {
	if s, known := r.Get(key); !known || s.byAction == nil {
		return
	}
	r.Update(key, func(s *attempts) {
		if a, known := s.byAction[do]; known {
			a.tried = true
			s.byAction[do] = a
		}
	})
}

// delay returns the time until an action may be tried again.
func (r *retries) delay(key types.NamespacedName, do action) time.Duration {
	s, _ := r.Get(key)
	return time.Until(s.byAction[do].notBefore)
}
