package polled

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// clockSkew is by how much the clock of the API server may be ahead of this one.
const clockSkew = time.Minute

// Record is the state of the requests for one machine. The record of a driver embeds it.
type Record struct {
	// Key is the machine. It is empty until a reconciler has named it.
	Key hypervisor.Key

	// written is the number of lists that were started when the last request ended: only
	// later lists are valid.
	written uint64
	// unknownSince is when a VM may last have been requested without a known result: by an
	// earlier process, or with a lost response. It is zero once the VM has been seen. An
	// awaited machine is delivered when its VM can no longer appear.
	unknownSince time.Time
	awaited      bool
	active       bool
}

func (r *Record) base() *Record { return r }

// IsAwaited reports whether a VM of the machine may still appear.
func (r *Record) IsAwaited() bool { return r.awaited }

// IsActive reports whether the list is polled often for the machine.
func (r *Record) IsActive() bool { return r.active }

// Unknown records that a VM may have been requested now, without a known result.
func (r *Record) Unknown() { r.unknownSince = time.Now() }

// Seen records that the VM of the machine was seen.
func (r *Record) Seen() { r.unknownSince, r.awaited = time.Time{}, false }

// Kept is a pointer to the record of a driver, which embeds Record.
type Kept[R any] interface {
	*R
	base() *Record
}

// Records are the records of machines by their IDs. The caller of a method holds the lock of
// the list, unless the method states otherwise.
type Records[K comparable, R any, P Kept[R]] struct {
	// Appear is how long after a request without a response a VM may still appear.
	Appear time.Duration

	started time.Time
	byID    map[K]P
	lists   uint64
	soon    chan struct{}
}

// New returns no records.
func New[K comparable, R any, P Kept[R]](appear time.Duration) *Records[K, R, P] {
	return &Records[K, R, P]{Appear: appear, started: time.Now(), byID: map[K]P{}, soon: make(chan struct{}, 1)}
}

// Get returns the record of a machine. An earlier process may have requested the VM of a new
// one.
func (r *Records[K, R, P]) Get(id K) P {
	one, ok := r.byID[id]
	if !ok {
		one = new(R)
		one.base().unknownSince = r.started
		r.byID[id] = one
	}
	return one
}

// Known returns the record of a machine, or nil if there is none.
func (r *Records[K, R, P]) Known(id K) P { return r.byID[id] }

// All returns all records.
func (r *Records[K, R, P]) All() iter.Seq2[K, P] { return maps.All(r.byID) }

// Forget removes the record of a machine that was deleted.
func (r *Records[K, R, P]) Forget(id K) { delete(r.byID, id) }

// Reset replaces the state of all machines: another hypervisor responds.
func (r *Records[K, R, P]) Reset() {
	for _, one := range r.byID {
		key := one.base().Key
		*one = *new(R)
		one.base().Key, one.base().unknownSince = key, time.Now()
	}
}

// Keys returns the machines that reconcilers have named.
func (r *Records[K, R, P]) Keys() []hypervisor.Key {
	keys := make([]hypervisor.Key, 0, len(r.byID))
	for _, one := range r.byID {
		if key := one.base().Key; key != (hypervisor.Key{}) {
			keys = append(keys, key)
		}
	}
	return keys
}

// StartList counts a list that is requested now.
func (r *Records[K, R, P]) StartList() uint64 {
	r.lists++
	return r.lists
}

// Lists returns the number of lists that were started.
func (r *Records[K, R, P]) Lists() uint64 { return r.lists }

// Written records that a request for a machine ended now.
func (r *Records[K, R, P]) Written(one P) { one.base().written = r.lists }

// Shows reports whether a list was started after the last request for a machine.
func (r *Records[K, R, P]) Shows(list uint64, one P) bool { return list > one.base().written }

// MayAppear reports whether a VM of a machine, which exists since a time, may have been
// requested without a known result, and whether it may still appear in a list. The machine
// is awaited then.
func (r *Records[K, R, P]) MayAppear(one P, exists time.Time) (unknown, soon bool) {
	b := one.base()
	unknown = !b.unknownSince.IsZero() && !exists.Add(-clockSkew).After(b.unknownSince)
	b.awaited = unknown && time.Since(b.unknownSince) < r.Appear
	return unknown, b.awaited
}

// EndAwaiting reports, once, that the VM of an awaited machine can no longer appear.
func (r *Records[K, R, P]) EndAwaiting(one P) bool {
	b := one.base()
	ended := b.awaited && time.Since(b.unknownSince) >= r.Appear
	b.awaited = b.awaited && !ended
	return ended
}

// SetActive sets whether the list is polled often for a machine, and returns whether that
// changed.
func (r *Records[K, R, P]) SetActive(one P, active bool) bool {
	b := one.base()
	if b.active == active {
		return false
	}
	b.active = active
	r.PollSoon()
	return true
}

// PollSoon triggers Wait. The caller needs no lock.
func (r *Records[K, R, P]) PollSoon() {
	select {
	case r.soon <- struct{}{}:
	default:
	}
}

// Wait returns when the next poll is due. The caller holds no lock: due takes it. It is
// called again when a machine changed.
func (r *Records[K, R, P]) Wait(ctx context.Context, due func() time.Time) error {
	for {
		left := time.Until(due())
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-r.soon:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for the next list: %w", err)
		}
	}
}
