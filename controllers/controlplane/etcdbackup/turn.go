package etcdbackup

import (
	"sync"
	"time"
)

// turnAgain is when a snapshot or a restore that waits for another one of its
// namespace is looked at again.
const turnAgain = 5 * time.Second

// turns lets one snapshot or restore of a namespace use its bucket at a time. A
// customer whose buckets hang so occupies one worker for each namespace,
// however many control planes the customer has.
type turns struct {
	mu   sync.Mutex
	busy map[string]struct{}
}

// take takes the turn of a namespace, if it is free. The turn ends with done.
func (t *turns) take(namespace string) (done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, busy := t.busy[namespace]; busy {
		return nil, false
	}
	if t.busy == nil {
		t.busy = map[string]struct{}{}
	}
	t.busy[namespace] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.busy, namespace)
	}, true
}
