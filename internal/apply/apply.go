package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Memory remembers what was applied to which object and what that object
// looked like after. Losing it costs one request an object. The zero value is
// ready; it is safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	seen map[types.UID]map[string]state
}

// state is what was wanted and what was there.
type state struct{ desired, observed [sha256.Size]byte }

// Apply applies desired to the object that was observed, if that changes
// anything, and reports whether it sent a request. desired carries the
// observed UID, so an object that has gone is not made again. A nil observed
// object is made, and desired gets its UID.
func (m *Memory) Apply(ctx context.Context, c client.Client, manager string, desired, observed client.Object) (bool, error) {
	u, err := Unstructured(desired)
	if err != nil {
		return false, err
	}
	var now state
	if observed != nil {
		u.SetUID(observed.GetUID())
		if now, err = stateOf(u, observed); err != nil {
			return false, err
		}
		if m.same(observed.GetUID(), manager, now) {
			return false, nil
		}
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return false, fmt.Errorf("applying %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if observed == nil {
		desired.SetUID(u.GetUID())
		return true, nil
	}
	if now.observed, err = looks(u); err != nil {
		return true, err
	}
	m.remember(u.GetUID(), manager, now)
	return true, nil
}

// Forget drops what is known of an object that has gone.
func (m *Memory) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, uid)
}

// Len is how many objects are known.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}

func (m *Memory) same(uid types.UID, manager string, s state) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	got, ok := m.seen[uid][manager]
	return ok && got == s
}

func (m *Memory) remember(uid types.UID, manager string, s state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[types.UID]map[string]state{}
	}
	if m.seen[uid] == nil {
		m.seen[uid] = map[string]state{}
	}
	m.seen[uid][manager] = s
}

func stateOf(desired *unstructured.Unstructured, observed client.Object) (s state, err error) {
	encoded, err := json.Marshal(desired.Object)
	if err != nil {
		return s, fmt.Errorf("encoding %s: %w", desired.GetName(), err)
	}
	s.desired = sha256.Sum256(encoded)
	s.observed, err = looks(observed)
	return s, err
}

// looks hashes what an apply can change of an object: everything in its spec
// moves the generation.
func looks(o client.Object) (sum [sha256.Size]byte, err error) {
	encoded, err := json.Marshal([]any{o.GetGeneration(), o.GetLabels(), o.GetAnnotations(), o.GetOwnerReferences()})
	if err != nil {
		return sum, fmt.Errorf("encoding metadata of %s: %w", o.GetName(), err)
	}
	return sha256.Sum256(encoded), nil
}

// Unstructured returns an object as it is to be applied: without status and
// what the API server sets.
func Unstructured(o client.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", o.GetName(), err)
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: fields}, nil
}
