package vcenter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// acquireMany takes slots until none is free, and then starts more requests
// that wait.
func acquireMany(ctx context.Context, t *testing.T, s *requestLimiter, n int, served func(int)) {
	t.Helper()
	for i := range n {
		go func() {
			if err := s.acquire(ctx); err == nil {
				served(i)
			}
		}()
		synctest.Wait() // so that they are queued in order
	}
}

func TestUrgentRequestsDoNotWaitBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &requestLimiter{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		usual := 0
		acquireMany(ctx, t, s, 500, func(int) { usual++ })
		if usual != maxRequests-reservedRequests {
			t.Errorf("%d usual requests at once, want %d", usual, maxRequests-reservedRequests)
		}
		for range reservedRequests {
			if err := s.acquire(Urgent(ctx)); err != nil {
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
		acquireMany(Urgent(ctx), t, s, 3, note("urgent"))
		for range 4 {
			s.release(Urgent(ctx))
			synctest.Wait()
		}
		if want := []string{"urgent", "urgent", "urgent"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
		cancel()
		synctest.Wait()
	})
}

func TestQueuesAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &requestLimiter{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range maxRequests {
			if err := s.acquire(Urgent(ctx)); err != nil {
				t.Fatal(err)
			}
		}
		var order []int
		acquireMany(ctx, t, s, 2, func(i int) { order = append(order, i) })
		acquireMany(Urgent(ctx), t, s, 2, func(i int) { order = append(order, 10+i) })
		for range 4 {
			s.release(Urgent(ctx))
			synctest.Wait()
		}
		if want := []int{0, 10, 1, 11}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
	})
}

func TestCanceledRequestReleasesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &requestLimiter{}
		for range maxRequests - reservedRequests {
			if err := s.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- s.acquire(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("take() = %v", err)
		}
		for range maxRequests - reservedRequests {
			s.release(t.Context())
		}
		if s.normal != 0 || s.total != 0 {
			t.Errorf("%d and %d slots in use, want none", s.normal, s.total)
		}
	})
}
