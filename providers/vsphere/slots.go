package vsphere

import (
	"context"
	"slices"
	"sync"
)

const (
	// parallel limits the requests to one vCenter and identity, so that a burst
	// of machines queues here and not in vCenter.
	parallel = 16
	// reserved is the number of these slots that only urgent requests get, so
	// that no urgent request waits for the response to a clone request.
	reserved = 4
)

// urgentContext is the key that marks requests which must not wait for
// creations.
type urgentContext struct{}

// urgent marks the requests that are sent with ctx as requests which must not
// wait for creations: deletions, power operations, and requests that keep the
// session open.
func urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgentContext{}, true)
}

func isUrgent(ctx context.Context) bool { return ctx.Value(urgentContext{}) != nil }

// slots is a fair semaphore with two queues. Each queue is first in, first
// out. While both have waiting requests, they alternate, so that neither
// starves.
type slots struct {
	mu sync.Mutex
	// usual and total are the slots in use, by usual requests and by all
	// requests.
	usual, total int
	lines        [2][]chan struct{}
	// next is the queue that comes first when both have waiting requests.
	next int
}

const (
	usualLine = iota
	urgentLine
)

// take waits for a slot, which has to be released with give.
func (s *slots) take(ctx context.Context) error {
	line := usualLine
	if isUrgent(ctx) {
		line = urgentLine
	}
	s.mu.Lock()
	if len(s.lines[line]) == 0 && s.free(line) {
		s.occupy(line)
		s.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	s.lines[line] = append(s.lines[line], mine)
	s.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.lines[line], mine); i >= 0 {
		s.lines[line] = slices.Delete(s.lines[line], i, i+1)
	} else {
		s.vacate(line) // the slot was granted at the same moment
	}
	return ctx.Err()
}

// give releases the slot that was taken with ctx.
func (s *slots) give(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isUrgent(ctx) {
		s.vacate(urgentLine)
	} else {
		s.vacate(usualLine)
	}
}

// free reports whether a request of a queue can get a slot. The caller holds
// the lock.
func (s *slots) free(line int) bool {
	return s.total < parallel && (line == urgentLine || s.usual < parallel-reserved)
}

func (s *slots) occupy(line int) {
	s.total++
	if line == usualLine {
		s.usual++
	}
}

// vacate releases a slot and grants free slots to waiting requests.
func (s *slots) vacate(line int) {
	s.total--
	if line == usualLine {
		s.usual--
	}
	for {
		first := s.next
		if len(s.lines[first]) == 0 || !s.free(first) {
			first = 1 - first
		}
		if len(s.lines[first]) == 0 || !s.free(first) {
			return
		}
		s.occupy(first)
		close(s.lines[first][0])
		s.lines[first] = s.lines[first][1:]
		s.next = 1 - first
	}
}
