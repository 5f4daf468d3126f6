package vsphere

import (
	"context"
	"slices"
	"sync"
)

const (
	// parallel bounds the requests to one vCenter and identity, so that a
	// burst of machines is a queue here and not there.
	parallel = 16
	// reserved of them are for urgent requests only, so that none of those
	// waits until a clone is answered.
	reserved = 4
)

// urgentContext marks requests that must not wait behind creations.
type urgentContext struct{}

// urgent marks the requests made with ctx as those that must not wait behind
// creations: deletions, power operations, and what keeps the session.
func urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgentContext{}, true)
}

func isUrgent(ctx context.Context) bool { return ctx.Value(urgentContext{}) != nil }

// slots is a fair semaphore with two lines. Each line is first come, first
// served; while both wait, they take turns, so that neither starves.
type slots struct {
	mu sync.Mutex
	// usual and total are the slots in use, by usual requests and by all.
	usual, total int
	lines        [2][]chan struct{}
	// next is the line that comes first when both wait.
	next int
}

const (
	usualLine = iota
	urgentLine
)

// take waits for a slot, which has to be given back.
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
		s.vacate(line) // it came at the same moment
	}
	return ctx.Err()
}

// give gives the slot back that was taken with ctx.
func (s *slots) give(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isUrgent(ctx) {
		s.vacate(urgentLine)
	} else {
		s.vacate(usualLine)
	}
}

// free reports whether a line can be given a slot. The caller holds the lock.
func (s *slots) free(line int) bool {
	return s.total < parallel && (line == urgentLine || s.usual < parallel-reserved)
}

func (s *slots) occupy(line int) {
	s.total++
	if line == usualLine {
		s.usual++
	}
}

// vacate frees a slot and gives what is free to those that wait.
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
