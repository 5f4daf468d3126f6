package machine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// written remembers what was last written of each machine. The cache may not
// show it yet when the machine is looked at again, and what people were told
// would then be told to them twice. A restart forgets it, and the cache has
// caught up by then.
type written struct {
	mu    sync.Mutex
	known map[types.NamespacedName]told
}

// swap notes what is written now, and returns what was before: cached, as long
// as nothing is remembered.
func (w *written) swap(key types.NamespacedName, cached, now told) told {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, ok := w.known[key]
	if !ok {
		before = cached
	}
	if w.known == nil {
		w.known = map[types.NamespacedName]told{}
	}
	w.known[key] = now
	return before
}

// forget drops a machine that is gone.
func (w *written) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.known, key)
}
