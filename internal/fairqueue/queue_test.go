package fairqueue

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

func (c *calls) record(key string) {
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

func acquire(t *testing.T, queue *Queue[string], key string, want bool, position int) {
	t.Helper()
	if got := queue.Acquire(key); got != want {
		t.Errorf("Acquire(%s) = %t, want %t", key, got, want)
	}
	if got := queue.Position(key); got != position {
		t.Errorf("Position(%s) = %d, want %d", key, got, position)
	}
}

func TestFirstInFirstOut(t *testing.T) {
	c := &calls{}
	queue := New(2, "fifo", together, c.record)
	defer queue.Close()
	acquire(t, queue, "a", true, 0)
	acquire(t, queue, "b", true, 0)
	acquire(t, queue, "a", true, 0)
	acquire(t, queue, "c", false, 1)
	acquire(t, queue, "d", false, 2)
	acquire(t, queue, "e", false, 3)
	acquire(t, queue, "d", false, 2) // repeated, it keeps its position
	c.want(t)

	queue.Release("b")
	c.want(t, "c")
	acquire(t, queue, "f", false, 3) // queued after the others
	acquire(t, queue, "c", true, 0)
	queue.Release("a")
	queue.Release("c")
	c.want(t, "c", "d", "e")
	acquire(t, queue, "f", false, 1)
}

// A group with a thousand queued keys delays a later group by one slot, and
// both keep their own order.
func TestGroupsAreServedRoundRobin(t *testing.T) {
	c := &calls{}
	queue := New(1, "groups", func(key string) string { group, _, _ := strings.Cut(key, "/"); return group }, c.record)
	defer queue.Close()
	acquire(t, queue, "many/first", true, 0)
	for i := range 1000 {
		acquire(t, queue, "many/"+strconv.Itoa(i), false, i+1)
	}
	acquire(t, queue, "few/a", false, 1)
	acquire(t, queue, "few/b", false, 2)
	running := "many/first"
	for _, next := range []string{"many/0", "few/a", "many/1", "few/b", "many/2", "many/3"} {
		queue.Release(running)
		acquire(t, queue, next, true, 0)
		running = next
	}
	c.want(t, "many/0", "few/a", "many/1", "few/b", "many/2", "many/3")
	queue.Release("many/5") // it is deleted while it waits
	acquire(t, queue, "many/6", false, 2)
}

// The cost of a key does not depend on the length of the queue.
func BenchmarkQueue(b *testing.B) {
	queue := New(1, "bench", numbers, func(int) {})
	queue.Acquire(-1)
	for i := range 100_000 {
		queue.Acquire(i)
	}
	for i := 0; b.Loop(); i++ {
		queue.Acquire(100_000 + i)
		queue.Release(i)
	}
}

func TestRemovedKeysDoNotBlockOthers(t *testing.T) {
	t.Run("Queued", func(t *testing.T) {
		c := &calls{}
		queue := New(1, "removed-queued", together, c.record)
		defer queue.Close()
		acquire(t, queue, "a", true, 0)
		acquire(t, queue, "b", false, 1)
		acquire(t, queue, "c", false, 2)
		queue.Release("b")
		queue.Release("never queued")
		acquire(t, queue, "c", false, 1)
		queue.Release("a")
		c.want(t, "c")
	})
	t.Run("Reserved", func(t *testing.T) {
		c := &calls{}
		queue := New(1, "removed-reserved", together, c.record)
		defer queue.Close()
		acquire(t, queue, "a", true, 0)
		acquire(t, queue, "b", false, 1)
		acquire(t, queue, "c", false, 2)
		queue.Release("a")
		queue.Release("b")
		c.want(t, "b", "c")
		acquire(t, queue, "c", true, 0)
	})
	t.Run("Unclaimed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &calls{}
			queue := New(1, "silent", together, c.record)
			acquire(t, queue, "a", true, 0)
			acquire(t, queue, "b", false, 1)
			acquire(t, queue, "c", false, 2)
			queue.Release("a")
			c.want(t, "b")
			<-time.After(Grace + time.Second)
			synctest.Wait()
			c.want(t, "b", "c")
			acquire(t, queue, "c", true, 0)
			acquire(t, queue, "b", false, 1) // it claims the slot too late
			<-time.After(10 * Grace)
			synctest.Wait()
			acquire(t, queue, "c", true, 0) // a claimed slot does not expire
			queue.Release("c")
			acquire(t, queue, "b", true, 0)
			queue.Close()
		})
	})
}

func TestDoneKeepsQueuedKeys(t *testing.T) {
	c := &calls{}
	queue := New(1, "done", together, c.record)
	defer queue.Close()
	acquire(t, queue, "a", true, 0)
	acquire(t, queue, "b", false, 1)
	queue.Done("b")
	acquire(t, queue, "b", false, 1)
	queue.Done("a")
	queue.Done("b") // it has a slot that it did not claim yet
	queue.Done("a")
	c.want(t, "b")
	acquire(t, queue, "b", true, 0)
	acquire(t, queue, "a", false, 1)
}

func TestNoLimit(t *testing.T) {
	queue := New(0, "any", numbers, func(int) { t.Error("a key was called although none waits") })
	for i := range 1000 {
		if !queue.Acquire(i) {
			t.Fatalf("Take(%d) = false", i)
		}
	}
	for i := range 1000 {
		queue.Release(i)
	}
}

// Many goroutines: never more slots than allowed, every key is served, and the
// callback may call back.
func TestConcurrentUse(t *testing.T) {
	const limit, all = 4, 200
	var (
		mu          sync.Mutex
		now, served int
		wg          sync.WaitGroup
		queue       *Queue[int]
	)
	work := func(key int) {
		if !queue.Acquire(key) {
			return
		}
		mu.Lock()
		now++
		if now > limit {
			t.Errorf("%d at once", now)
		}
		mu.Unlock()
		wg.Go(func() {
			mu.Lock()
			now--
			served++
			mu.Unlock()
			queue.Release(key)
			wg.Done()
		})
	}
	queue = New(limit, "many", numbers, func(key int) { work(key) })
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
	queue := New(1, "metrics", together, func(string) {})
	queue.Acquire("a")
	queue.Acquire("b")
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
	queue.Release("a")
	want(0, 1)
	queue.Acquire("b")
	want(1, 0)
	queue.Close()
	want(0, 0)
}
