package turns

import (
	"container/list"
	"sync"
	"time"
)

// Grace is how long a turn is kept for a key that was called.
const Grace = 30 * time.Second

// Turns hands out a number of turns at one endpoint. Its methods may be called
// from anywhere, the callback included.
type Turns[K comparable] struct {
	most     int
	endpoint string
	group    func(K) string
	call     func(K)

	mu sync.Mutex
	// taken are the keys that have a turn.
	taken map[K]struct{}
	// called are the keys whose turn has come and that have not claimed it
	// yet. Their turn goes to the next when the timer ends.
	called map[K]*time.Timer
	// waiting are the keys in line, each with its place in the queue of its
	// group. Queues are never empty, and next has them in the order in which
	// their groups come.
	waiting map[K]*list.Element
	queues  map[string]*queue
	next    *list.List
}

// queue has the waiting keys of one group.
type queue struct {
	group string
	keys  *list.List
	// turn is the queue's own place among the queues.
	turn *list.Element
}

// New returns Turns of which no more than most are taken at a time; zero means
// any number. The endpoint is for metrics of creations; if it is empty, there are
// none. Keys of which group returns the same wait in one queue. Once the turn of a
// key in line has come, call is called with it.
func New[K comparable](most int, endpoint string, group func(K) string, call func(K)) *Turns[K] {
	return &Turns[K]{
		most: most, endpoint: endpoint, group: group, call: call,
		taken: map[K]struct{}{}, called: map[K]*time.Timer{},
		waiting: map[K]*list.Element{}, queues: map[string]*queue{}, next: list.New(),
	}
}

// Take gives key a turn, or puts it in line and returns false. To call it again
// changes nothing: a key that has a turn keeps it, and one in line its place.
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

// enqueue puts key at the end of the queue of its group. The caller holds the
// lock.
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

// dequeue takes a key that waits out of the queue of its group. The caller
// holds the lock.
func (t *Turns[K]) dequeue(key K) {
	q := t.queues[t.group(key)]
	q.keys.Remove(t.waiting[key])
	delete(t.waiting, key)
	if q.keys.Len() == 0 {
		t.next.Remove(q.turn)
		delete(t.queues, q.group)
	}
}

// Place returns the place of key in the queue of its group: 1 is next, 0 is not
// in line.
func (t *Turns[K]) Place(key K) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	place := 0
	for at := t.waiting[key]; at != nil; at = at.Prev() {
		place++
	}
	return place
}

// Done gives back the turn of key, if it has claimed one. Its place in line, or
// a turn that has come and was not claimed yet, stays.
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

// Release takes the turn, or the place in line, of key away. The turn goes to
// the next in line. A key that has neither is fine.
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

// Close forgets every turn and everybody in line.
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

// free reports whether a turn is left. The caller holds the lock.
func (t *Turns[K]) free() bool {
	return t.most <= 0 || len(t.taken)+len(t.called) < t.most
}

// advance calls as many from the line as there are turns, and returns them. The
// caller holds the lock, and tells them after it.
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

// lapse gives the turn of a key that did not claim it to the next, unless the
// key was called anew meanwhile.
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
