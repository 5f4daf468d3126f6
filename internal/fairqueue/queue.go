package fairqueue

import (
	"container/list"
	"sync"
	"time"
)

// Grace is how long a slot is reserved for a reported key.
const Grace = 30 * time.Second

// Queue manages a number of slots at one endpoint. All methods are safe for
// concurrent use, also from the callback.
type Queue[K comparable] struct {
	limit    int
	endpoint string
	group    func(K) string
	notify   func(K)

	mu sync.Mutex
	// active contains the keys that have a slot.
	active map[K]struct{}
	// reserved contains the keys that got a slot and have not claimed it yet.
	// The slot is given to the next key when the timer ends.
	reserved map[K]*time.Timer
	// queued contains the queued keys, each with its element in the queue of
	// its group. Queues are never empty, and next contains them in the order of
	// their groups.
	queued map[K]*list.Element
	queues map[string]*groupQueue
	next   *list.List
}

// groupQueue has the waiting keys of one group.
type groupQueue struct {
	group string
	keys  *list.List
	// element is the element of the queue in the list of queues.
	element *list.Element
}

// New returns a Queue with at most limit slots in use; zero means no limit. The
// endpoint is for metrics of creations; if it is empty, there are none. Keys
// with the same result of group wait in one queue. When a queued key gets a
// slot, notify is called with it.
func New[K comparable](limit int, endpoint string, group func(K) string, notify func(K)) *Queue[K] {
	return &Queue[K]{
		limit: limit, endpoint: endpoint, group: group, notify: notify,
		active: map[K]struct{}{}, reserved: map[K]*time.Timer{},
		queued: map[K]*list.Element{}, queues: map[string]*groupQueue{}, next: list.New(),
	}
}

// Acquire gives key a slot, or queues it and returns false. Repeated calls
// change nothing: a key keeps its slot, or its position in the queue.
func (f *Queue[K]) Acquire(key K) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.measure()
	if _, ok := f.active[key]; ok {
		return true
	}
	if timer, ok := f.reserved[key]; ok {
		timer.Stop()
		delete(f.reserved, key)
		f.active[key] = struct{}{}
		return true
	}
	if f.hasFreeSlot() && len(f.queued) == 0 {
		f.active[key] = struct{}{}
		return true
	}
	if _, ok := f.queued[key]; !ok {
		f.enqueue(key)
	}
	return false
}

// enqueue appends key to the queue of its group. The caller holds the lock.
func (f *Queue[K]) enqueue(key K) {
	group := f.group(key)
	q, ok := f.queues[group]
	if !ok {
		q = &groupQueue{group: group, keys: list.New()}
		q.element = f.next.PushBack(q)
		f.queues[group] = q
	}
	f.queued[key] = q.keys.PushBack(key)
}

// dequeue removes a waiting key from the queue of its group. The caller holds
// the lock.
func (f *Queue[K]) dequeue(key K) {
	q := f.queues[f.group(key)]
	q.keys.Remove(f.queued[key])
	delete(f.queued, key)
	if q.keys.Len() == 0 {
		f.next.Remove(q.element)
		delete(f.queues, q.group)
	}
}

// Position returns the position of key in the queue of its group: 1 is next, 0
// means not queued.
func (f *Queue[K]) Position(key K) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	position := 0
	for at := f.queued[key]; at != nil; at = at.Prev() {
		position++
	}
	return position
}

// Done releases the slot of key, if it has claimed one. Its position in the
// queue, or a slot that it has not claimed yet, stays.
func (f *Queue[K]) Done(key K) {
	f.mu.Lock()
	_, had := f.active[key]
	delete(f.active, key)
	var next []K
	if had {
		next = f.advance()
	}
	f.mu.Unlock()
	f.notifyAll(next)
}

// Release removes key from the queue, or releases its slot for the next key. A
// key with neither is allowed.
func (f *Queue[K]) Release(key K) {
	f.mu.Lock()
	_, had := f.active[key]
	delete(f.active, key)
	if timer, isReserved := f.reserved[key]; isReserved {
		timer.Stop()
		delete(f.reserved, key)
		had = true
	}
	if _, isQueued := f.queued[key]; !had && isQueued {
		f.dequeue(key)
	}
	next := f.advance()
	f.mu.Unlock()
	f.notifyAll(next)
}

// Close drops all slots and queued keys.
func (f *Queue[K]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, timer := range f.reserved {
		timer.Stop()
	}
	clear(f.active)
	clear(f.reserved)
	clear(f.queued)
	clear(f.queues)
	f.next.Init()
	f.measure()
}

// hasFreeSlot reports whether a slot is left. The caller holds the lock.
func (f *Queue[K]) hasFreeSlot() bool {
	return f.limit <= 0 || len(f.active)+len(f.reserved) < f.limit
}

// advance assigns the free slots to queued keys, and returns these keys. The
// caller holds the lock, and reports them after releasing it.
func (f *Queue[K]) advance() []K {
	var next []K
	for len(f.queued) > 0 && f.hasFreeSlot() {
		q := f.next.Front().Value.(*groupQueue) //nolint:forcetypeassert // nothing else is in it
		f.next.MoveToBack(q.element)
		key := q.keys.Front().Value.(K) //nolint:forcetypeassert // nothing else is in it
		f.dequeue(key)
		var timer *time.Timer
		timer = time.AfterFunc(Grace, func() { f.expire(key, &timer) })
		f.reserved[key] = timer
		next = append(next, key)
	}
	f.measure()
	return next
}

// expire gives the unclaimed slot of a key to the next, unless the key got
// another slot in the meantime.
func (f *Queue[K]) expire(key K, timer **time.Timer) {
	f.mu.Lock()
	if f.reserved[key] != *timer {
		f.mu.Unlock()
		return
	}
	delete(f.reserved, key)
	next := f.advance()
	f.mu.Unlock()
	f.notifyAll(next)
}

func (f *Queue[K]) notifyAll(keys []K) {
	for _, key := range keys {
		f.notify(key)
	}
}
