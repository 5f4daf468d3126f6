package turns

import (
	"container/list"
	"sync"
	"time"
)

// Grace is how long a slot is reserved for a reported key.
const Grace = 30 * time.Second

// Turns manages a number of slots at one endpoint. All methods are safe for
// concurrent use, also from the callback.
type Turns[K comparable] struct {
	most     int
	endpoint string
	group    func(K) string
	call     func(K)

	mu sync.Mutex
	// taken contains the keys that have a slot.
	taken map[K]struct{}
	// called contains the keys that got a slot and have not claimed it yet. The
	// slot is given to the next key when the timer ends.
	called map[K]*time.Timer
	// waiting contains the queued keys, each with its element in the queue of
	// its group. Queues are never empty, and next contains them in the order of
	// their groups.
	waiting map[K]*list.Element
	queues  map[string]*queue
	next    *list.List
}

// queue has the waiting keys of one group.
type queue struct {
	group string
	keys  *list.List
	// turn is the element of the queue in the list of queues.
	turn *list.Element
}

// New returns Turns with at most most slots in use; zero means no limit. The
// endpoint is for metrics of creations; if it is empty, there are none. Keys
// with the same result of group wait in one queue. When a queued key gets a
// slot, call is called with it.
func New[K comparable](most int, endpoint string, group func(K) string, call func(K)) *Turns[K] {
	return &Turns[K]{
		most: most, endpoint: endpoint, group: group, call: call,
		taken: map[K]struct{}{}, called: map[K]*time.Timer{},
		waiting: map[K]*list.Element{}, queues: map[string]*queue{}, next: list.New(),
	}
}

// Take gives key a slot, or queues it and returns false. Repeated calls change
// nothing: a key keeps its slot, or its place in the queue.
func (t *Turns[K]) Take(key K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.measure()
	if _, has := t.taken[key]; has {
		return true
	}
	if timer, has := t.called[key]; has {
		timer.Stop()
		delete(t.called, key)
		t.taken[key] = struct{}{}
		return true
	}
	if t.free() && len(t.waiting) == 0 {
		t.taken[key] = struct{}{}
		return true
	}
	if _, has := t.waiting[key]; !has {
		t.enqueue(key)
	}
	return false
}

// enqueue appends key to the queue of its group. The caller holds the lock.
func (t *Turns[K]) enqueue(key K) {
	group := t.group(key)
	q, ok := t.queues[group]
	if !ok {
		q = &queue{group: group, keys: list.New()}
		q.turn = t.next.PushBack(q)
		t.queues[group] = q
	}
	t.waiting[key] = q.keys.PushBack(key)
}

// dequeue removes a waiting key from the queue of its group. The caller holds
// the lock.
func (t *Turns[K]) dequeue(key K) {
	q := t.queues[t.group(key)]
	q.keys.Remove(t.waiting[key])
	delete(t.waiting, key)
	if q.keys.Len() == 0 {
		t.next.Remove(q.turn)
		delete(t.queues, q.group)
	}
}

// Place returns the place of key in the queue of its group: 1 is next, 0 means
// not queued.
func (t *Turns[K]) Place(key K) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	place := 0
	for at := t.waiting[key]; at != nil; at = at.Prev() {
		place++
	}
	return place
}

// Done releases the slot of key, if it has claimed one. Its place in the queue,
// or a slot that it has not claimed yet, stays.
func (t *Turns[K]) Done(key K) {
	t.mu.Lock()
	_, had := t.taken[key]
	delete(t.taken, key)
	var next []K
	if had {
		next = t.advance()
	}
	t.mu.Unlock()
	t.tell(next)
}

// Release removes key from the queue, or releases its slot for the next key. A
// key with neither is allowed.
func (t *Turns[K]) Release(key K) {
	t.mu.Lock()
	_, had := t.taken[key]
	delete(t.taken, key)
	if timer, called := t.called[key]; called {
		timer.Stop()
		delete(t.called, key)
		had = true
	}
	if _, waits := t.waiting[key]; !had && waits {
		t.dequeue(key)
	}
	next := t.advance()
	t.mu.Unlock()
	t.tell(next)
}

// Close drops all slots and queued keys.
func (t *Turns[K]) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, timer := range t.called {
		timer.Stop()
	}
	clear(t.taken)
	clear(t.called)
	clear(t.waiting)
	clear(t.queues)
	t.next.Init()
	t.measure()
}

// free reports whether a slot is left. The caller holds the lock.
func (t *Turns[K]) free() bool {
	return t.most <= 0 || len(t.taken)+len(t.called) < t.most
}

// advance assigns the free slots to queued keys, and returns these keys. The
// caller holds the lock, and reports them after releasing it.
func (t *Turns[K]) advance() []K {
	var next []K
	for len(t.waiting) > 0 && t.free() {
		q := t.next.Front().Value.(*queue) //nolint:forcetypeassert // nothing else is in it
		t.next.MoveToBack(q.turn)
		key := q.keys.Front().Value.(K) //nolint:forcetypeassert // nothing else is in it
		t.dequeue(key)
		var timer *time.Timer
		timer = time.AfterFunc(Grace, func() { t.lapse(key, &timer) })
		t.called[key] = timer
		next = append(next, key)
	}
	t.measure()
	return next
}

// lapse gives the unclaimed slot of a key to the next, unless the key got
// another slot in the meantime.
func (t *Turns[K]) lapse(key K, timer **time.Timer) {
	t.mu.Lock()
	if t.called[key] != *timer {
		t.mu.Unlock()
		return
	}
	delete(t.called, key)
	next := t.advance()
	t.mu.Unlock()
	t.tell(next)
}

func (t *Turns[K]) tell(keys []K) {
	for _, key := range keys {
		t.call(key)
	}
}
