package etcdbackup

import (
	"sync"
	"time"
)

// lockRequeue is the requeue interval of a snapshot or a restore that waits for
// another one of its namespace.
const lockRequeue = 5 * time.Second

// namespaceLocks allows one snapshot or restore of a namespace to use its bucket at a
// time. A tenant whose buckets do not respond thus occupies one worker for each
// namespace, independent of the number of control planes.
type namespaceLocks struct {
	mu   sync.Mutex
	busy map[string]struct{}
}

// tryLock locks a namespace if it is free. The returned done unlocks it.
func (t *namespaceLocks) tryLock(namespace string) (done func(), ok bool) {
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
