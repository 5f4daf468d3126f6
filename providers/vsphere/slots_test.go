package vsphere

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// queue takes slots until none is free, and then starts more requests that
// wait.
func queue(ctx context.Context, t *testing.T, s *slots, n int, served func(int)) {
	t.Helper()
	for i := range n {
		go func() {
			if err := s.take(ctx); err == nil {
				served(i)
			}
		}()
		synctest.Wait() // so that they are queued in order
	}
}

func TestUrgentRequestsDoNotWaitBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		usual := 0
		queue(ctx, t, s, 500, func(int) { usual++ })
		if usual != parallel-reserved {
			t.Errorf("%d usual requests at once, want %d", usual, parallel-reserved)
		}
		for range reserved {
			if err := s.take(urgent(ctx)); err != nil {
				t.Fatal(err)
			}
		}
		// Now all slots are in use, and both kinds alternate.
		var order []string
		var mu sync.Mutex
		note := func(kind string) func(int) {
			return func(int) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, kind)
			}
		}
		queue(urgent(ctx), t, s, 3, note("urgent"))
		for range 4 {
			s.give(urgent(ctx))
			synctest.Wait()
		}
		if want := []string{"urgent", "urgent", "urgent"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
		cancel()
		synctest.Wait()
	})
}

func TestSlotsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range parallel {
			if err := s.take(urgent(ctx)); err != nil {
				t.Fatal(err)
			}
		}
		var order []int
		queue(ctx, t, s, 2, func(i int) { order = append(order, i) })
		queue(urgent(ctx), t, s, 2, func(i int) { order = append(order, 10+i) })
		for range 4 {
			s.give(urgent(ctx))
			synctest.Wait()
		}
		if want := []int{0, 10, 1, 11}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
	})
}

func TestSlotOfWhoeverGivesUpIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{}
		for range parallel - reserved {
			if err := s.take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- s.take(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("take() = %v", err)
		}
		for range parallel - reserved {
			s.give(t.Context())
		}
		if s.usual != 0 || s.total != 0 {
			t.Errorf("%d and %d slots in use, want none", s.usual, s.total)
		}
	})
}
