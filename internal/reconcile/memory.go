package reconcile

import (
	"maps"
	"sync"
)

// Memory keeps a value for each key for as long as the process lives: state of a
// reconciler that no object contains. Reconcilers forget the key of
// a deleted object when they find that it does not exist. The zero value is
// ready to use; it is safe for concurrent use.
type Memory[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// Get returns the value of key, and whether there is one.
func (m *Memory[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	return v, ok
}

// Set sets the value of key.
func (m *Memory[K, V]) Set(key K, value V) {
	m.Update(key, func(v *V) { *v = value })
}

// Swap sets the value of key. It returns the previous value, and whether there
// was one.
func (m *Memory[K, V]) Swap(key K, value V) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, ok := m.values[key]
	m.set(key, value)
	return before, ok
}

// Update changes the value of key, which is the zero value if there is none.
// Other calls wait until change returns.
func (m *Memory[K, V]) Update(key K, change func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.values[key]
	change(&v)
	m.set(key, v)
}

func (m *Memory[K, V]) set(key K, value V) {
	if m.values == nil {
		m.values = map[K]V{}
	}
	m.values[key] = value
}

// Forget deletes the value of key.
func (m *Memory[K, V]) Forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
}

// ForgetIf deletes the values for which old returns true.
func (m *Memory[K, V]) ForgetIf(old func(K, V) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.values, old)
}

// Len returns the number of values.
func (m *Memory[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values)
}

// All returns a copy of all values.
func (m *Memory[K, V]) All() map[K]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values)
}
