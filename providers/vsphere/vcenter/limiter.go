package vcenter

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxRequests limits the requests to one vCenter and identity, so that a burst
	// of machines queues here and not in vCenter.
	maxRequests = 16
	// reservedRequests is the number of these slots that only urgent requests
	// get, so that no urgent request waits for the response to a clone request.
	reservedRequests = 4
)

// urgentContext is the key that marks requests which must not wait for
// creations.
type urgentContext struct{}

// Urgent marks the requests that are sent with ctx as requests which must not
// wait for creations: deletions, power operations, and requests that keep the
// session open.
func Urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgentContext{}, true)
}

func isUrgent(ctx context.Context) bool { return ctx.Value(urgentContext{}) != nil }

// requestLimiter is a fair semaphore with two queues. Each queue is first in,
// first out. While both have waiting requests, they alternate, so that neither
// starves.
type requestLimiter struct {
	mu sync.Mutex
	// normal and total are the slots in use, by normal requests and by all
	// requests.
	normal, total int
	queues        [2][]chan struct{}
	// next is the queue that comes first when both have waiting requests.
	next int
}

const (
	normalQueue = iota
	urgentQueue
)

// acquire waits for a slot, which has to be released with release.
func (s *requestLimiter) acquire(ctx context.Context) error {
	queue := normalQueue
	if isUrgent(ctx) {
		queue = urgentQueue
	}
	s.mu.Lock()
	if len(s.queues[queue]) == 0 && s.hasFreeSlot(queue) {
		s.grant(queue)
		s.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	s.queues[queue] = append(s.queues[queue], granted)
	s.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queues[queue], granted); i >= 0 {
		s.queues[queue] = slices.Delete(s.queues[queue], i, i+1)
	} else {
		s.releaseLocked(queue) // the slot was granted at the same moment
	}
	return ctx.Err()
}

// release releases the slot that was acquired with ctx.
func (s *requestLimiter) release(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isUrgent(ctx) {
		s.releaseLocked(urgentQueue)
	} else {
		s.releaseLocked(normalQueue)
	}
}

// hasFreeSlot reports whether a request of a queue can get a slot. The caller
// holds the lock.
func (s *requestLimiter) hasFreeSlot(queue int) bool {
	return s.total < maxRequests && (queue == urgentQueue || s.normal < maxRequests-reservedRequests)
}

func (s *requestLimiter) grant(queue int) {
	s.total++
	if queue == normalQueue {
		s.normal++
	}
}

// releaseLocked releases a slot and grants free slots to waiting requests.
func (s *requestLimiter) releaseLocked(queue int) {
	s.total--
	if queue == normalQueue {
		s.normal--
	}
	for {
		first := s.next
		if len(s.queues[first]) == 0 || !s.hasFreeSlot(first) {
			first = 1 - first
		}
		if len(s.queues[first]) == 0 || !s.hasFreeSlot(first) {
			return
		}
		s.grant(first)
		close(s.queues[first][0])
		s.queues[first] = s.queues[first][1:]
		s.next = 1 - first
	}
}
