package turns

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// calls records the reported keys.
type calls struct {
	mu   sync.Mutex
	keys []string
}

func (c *calls) call(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = append(c.keys, key)
}

func (c *calls) want(t *testing.T, keys ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.keys, keys) {
		t.Errorf("called %q, want %q", c.keys, keys)
	}
}

// together puts all keys into one group.
func together(string) string { return "" }

// numbers puts keys into five groups.
func numbers(key int) string { return strconv.Itoa(key % 5) }

func take(t *testing.T, turns *Turns[string], key string, want bool, place int) {
	t.Helper()
	if got := turns.Take(key); got != want {
		t.Errorf("Take(%s) = %t, want %t", key, got, want)
	}
	if got := turns.Place(key); got != place {
		t.Errorf("Place(%s) = %d, want %d", key, got, place)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	c := &calls{}
	turns := New(2, "fifo", together, c.call)
	defer turns.Close()
	take(t, turns, "a", true, 0)
	take(t, turns, "b", true, 0)
	take(t, turns, "a", true, 0)
	take(t, turns, "c", false, 1)
	take(t, turns, "d", false, 2)
	take(t, turns, "e", false, 3)
	take(t, turns, "d", false, 2) // it asks again and keeps its place
	c.want(t)

	turns.Release("b")
	c.want(t, "c")
	take(t, turns, "f", false, 3) // it cannot go before those that wait
	take(t, turns, "c", true, 0)
	turns.Release("a")
	turns.Release("c")
	c.want(t, "c", "d", "e")
	take(t, turns, "f", false, 1)
}

// A group with a thousand queued keys delays a later group by one slot, and
// both keep their own order.
func TestGroupsTakeTurns(t *testing.T) {
	c := &calls{}
	turns := New(1, "groups", func(key string) string { group, _, _ := strings.Cut(key, "/"); return group }, c.call)
	defer turns.Close()
	take(t, turns, "many/first", true, 0)
	for i := range 1000 {
		take(t, turns, "many/"+strconv.Itoa(i), false, i+1)
	}
	take(t, turns, "few/a", false, 1)
	take(t, turns, "few/b", false, 2)
	running := "many/first"
	for _, next := range []string{"many/0", "few/a", "many/1", "few/b", "many/2", "many/3"} {
		turns.Release(running)
		take(t, turns, next, true, 0)
		running = next
	}
	c.want(t, "many/0", "few/a", "many/1", "few/b", "many/2", "many/3")
	turns.Release("many/5") // it is deleted while it waits
	take(t, turns, "many/6", false, 2)
}

// The cost of a key does not depend on the length of the queue.
func BenchmarkTurns(b *testing.B) {
	turns := New(1, "bench", numbers, func(int) {})
	turns.Take(-1)
	for i := range 100_000 {
		turns.Take(i)
	}
	for i := 0; b.Loop(); i++ {
		turns.Take(100_000 + i)
		turns.Release(i)
	}
}

func TestWhoeverGoesAwayHoldsNobodyUp(t *testing.T) {
	t.Run("InLine", func(t *testing.T) {
		c := &calls{}
		turns := New(1, "gone-in-line", together, c.call)
		defer turns.Close()
		take(t, turns, "a", true, 0)
		take(t, turns, "b", false, 1)
		take(t, turns, "c", false, 2)
		turns.Release("b")
		turns.Release("never queued")
		take(t, turns, "c", false, 1)
		turns.Release("a")
		c.want(t, "c")
	})
	t.Run("OnceCalled", func(t *testing.T) {
		c := &calls{}
		turns := New(1, "gone-called", together, c.call)
		defer turns.Close()
		take(t, turns, "a", true, 0)
		take(t, turns, "b", false, 1)
		take(t, turns, "c", false, 2)
		turns.Release("a")
		turns.Release("b")
		c.want(t, "b", "c")
		take(t, turns, "c", true, 0)
	})
	t.Run("SayingNothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &calls{}
			turns := New(1, "silent", together, c.call)
			take(t, turns, "a", true, 0)
			take(t, turns, "b", false, 1)
			take(t, turns, "c", false, 2)
			turns.Release("a")
			c.want(t, "b")
			<-time.After(Grace + time.Second)
			synctest.Wait()
			c.want(t, "b", "c")
			take(t, turns, "c", true, 0)
			take(t, turns, "b", false, 1) // it claims the slot too late
			<-time.After(10 * Grace)
			synctest.Wait()
			take(t, turns, "c", true, 0) // a turn that is taken never lapses
			turns.Release("c")
			take(t, turns, "b", true, 0)
			turns.Close()
		})
	})
}

func TestDoneLeavesTheLineAlone(t *testing.T) {
	c := &calls{}
	turns := New(1, "done", together, c.call)
	defer turns.Close()
	take(t, turns, "a", true, 0)
	take(t, turns, "b", false, 1)
	turns.Done("b")
	take(t, turns, "b", false, 1)
	turns.Done("a")
	turns.Done("b") // it has a slot that it did not claim yet
	turns.Done("a")
	c.want(t, "b")
	take(t, turns, "b", true, 0)
	take(t, turns, "a", false, 1)
}

func TestAnyNumber(t *testing.T) {
	turns := New(0, "any", numbers, func(int) { t.Error("a key was called although none waits") })
	for i := range 1000 {
		if !turns.Take(i) {
			t.Fatalf("Take(%d) = false", i)
		}
	}
	for i := range 1000 {
		turns.Release(i)
	}
}

// Many goroutines: never more slots than allowed, every key is served, and the
// callback may call back.
func TestManyAtOnce(t *testing.T) {
	const most, all = 4, 200
	var (
		mu          sync.Mutex
		now, served int
		wg          sync.WaitGroup
		turns       *Turns[int]
	)
	work := func(key int) {
		if !turns.Take(key) {
			return
		}
		mu.Lock()
		now++
		if now > most {
			t.Errorf("%d at once", now)
		}
		mu.Unlock()
		wg.Go(func() {
			mu.Lock()
			now--
			served++
			mu.Unlock()
			turns.Release(key)
			wg.Done()
		})
	}
	turns = New(most, "many", numbers, func(key int) { work(key) })
	wg.Add(all)
	for key := range all {
		wg.Go(func() { work(key) })
	}
	wg.Wait()
	if served != all {
		t.Errorf("%d served, want %d", served, all)
	}
}

func TestMetrics(t *testing.T) {
	turns := New(1, "metrics", together, func(string) {})
	turns.Take("a")
	turns.Take("b")
	want := func(running, waiting float64) {
		t.Helper()
		if got := testutil.ToFloat64(creations.WithLabelValues("metrics", inFlight)); got != running {
			t.Errorf("%v in flight, want %v", got, running)
		}
		if got := testutil.ToFloat64(creations.WithLabelValues("metrics", queued)); got != waiting {
			t.Errorf("%v queued, want %v", got, waiting)
		}
	}
	want(1, 1)
	turns.Release("a")
	want(0, 1)
	turns.Take("b")
	want(1, 0)
	turns.Close()
	want(0, 0)
}
