package approver

import "sync"

// keyedState stores values for as long as the process lives. The zero value is ready to use; it is safe
// for concurrent use.
type keyedState[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]V
}

func (m *keyedState[K, V]) get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.known[key]
	return v, ok
}

func (m *keyedState[K, V]) set(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[K]V{}
	}
	m.known[key] = value
}

func (m *keyedState[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}
