package controlplane

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

const (
	// fieldManager owns what a child is made with.
	fieldManager = "nova-control-plane"
	// metadataManager owns the labels and annotations that are passed on to
	// objects whose spec is never written again.
	metadataManager = "nova-control-plane-metadata"
)

// applied remembers what was applied to which object and what that object
// looked like after, so that nothing is sent while nothing changed. Losing it
// costs one request an object.
type applied struct {
	mu   sync.Mutex
	seen map[types.UID]map[string]appliedState
}

type appliedState struct{ desired, observed [sha256.Size]byte }

func (a *applied) same(uid types.UID, manager string, state appliedState) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	got, ok := a.seen[uid][manager]
	return ok && got == state
}

func (a *applied) remember(uid types.UID, manager string, state appliedState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[types.UID]map[string]appliedState{}
	}
	if a.seen[uid] == nil {
		a.seen[uid] = map[string]appliedState{}
	}
	a.seen[uid][manager] = state
}

func (a *applied) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.seen, uid)
}

// apply applies desired to the object that was observed, if it changes
// anything. desired carries the observed UID, so an object that has gone is
// not made again. A nil observed object is made.
func (r *Reconciler) apply(ctx context.Context, manager string, desired, observed client.Object) error {
	u, err := toUnstructured(desired)
	if err != nil {
		return err
	}
	var state appliedState
	if observed != nil {
		u.SetUID(observed.GetUID())
		if state, err = stateOf(u, observed); err != nil {
			return err
		}
		if r.applied.same(observed.GetUID(), manager, state) {
			return nil
		}
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if observed == nil {
		desired.SetUID(u.GetUID())
		return nil
	}
	if state.observed, err = looks(u); err != nil {
		return err
	}
	r.applied.remember(u.GetUID(), manager, state)
	return nil
}

func stateOf(desired *unstructured.Unstructured, observed client.Object) (state appliedState, err error) {
	encoded, err := json.Marshal(desired.Object)
	if err != nil {
		return state, fmt.Errorf("encoding %s: %w", desired.GetName(), err)
	}
	state.desired = sha256.Sum256(encoded)
	state.observed, err = looks(observed)
	return state, err
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

// toUnstructured returns an object as it is to be applied: without status and
// what the API server sets.
func toUnstructured(o client.Object) (*unstructured.Unstructured, error) {
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
