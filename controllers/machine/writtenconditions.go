package machine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// writtenConditions remembers the conditions that were last written for each machine. The cache may
// not show them yet at the next reconcile, which would then record the same events again. A restart
// clears this memory, and the cache is up to date by then.
type writtenConditions struct {
	mu    sync.Mutex
	known map[types.NamespacedName]conditionSet
}

// swap stores the conditions that are written now, and returns the previous ones: cached, if none are
// remembered.
func (w *writtenConditions) swap(key types.NamespacedName, cached, now conditionSet) conditionSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, ok := w.known[key]
	if !ok {
		before = cached
	}
	if w.known == nil {
		w.known = map[types.NamespacedName]conditionSet{}
	}
	w.known[key] = now
	return before
}

// forget drops a deleted machine.
func (w *writtenConditions) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.known, key)
}
