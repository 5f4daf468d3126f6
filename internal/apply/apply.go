package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// Memory records the last apply of each object and the state of the object
// afterwards. If the record is lost, one request per object is repeated. The
// zero value is ready to use; it is safe for concurrent use.
type Memory struct {
	seen reconcile.Memory[types.UID, map[string]state]
}

// state contains hashes of the applied and of the observed object.
type state struct{ desired, observed [sha256.Size]byte }

// Apply applies desired to the observed object if that changes anything, and
// reports whether it sent a request. desired contains the observed UID, so a
// deleted object is not created again. If observed is nil, Apply creates the
// object and sets the UID of desired.
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

// Forget drops the record of a deleted object.
func (m *Memory) Forget(uid types.UID) { m.seen.Forget(uid) }

// Len returns the number of recorded objects.
func (m *Memory) Len() int { return m.seen.Len() }

func (m *Memory) same(uid types.UID, manager string, s state) bool {
	seen, _ := m.seen.Get(uid)
	got, ok := seen[manager]
	return ok && got == s
}

func (m *Memory) remember(uid types.UID, manager string, s state) {
	m.seen.Update(uid, func(seen *map[string]state) {
		if *seen = maps.Clone(*seen); *seen == nil { // others may read the previous one
			*seen = map[string]state{}
		}
		(*seen)[manager] = s
	})
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

// looks hashes the parts of an object that an apply can change: each change of
// the spec changes the generation.
func looks(o client.Object) (sum [sha256.Size]byte, err error) {
	encoded, err := json.Marshal([]any{o.GetGeneration(), o.GetLabels(), o.GetAnnotations(), o.GetOwnerReferences()})
	if err != nil {
		return sum, fmt.Errorf("encoding metadata of %s: %w", o.GetName(), err)
	}
	return sha256.Sum256(encoded), nil
}

// Unstructured returns an object for an apply: without status and without the
// fields that the API server sets.
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
