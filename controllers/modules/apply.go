package modules

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observed reads the current state of an object. It returns nil when the object does not exist.
func (r *ClusterReconciler) observed(ctx context.Context, o client.Object) (client.Object, error) {
	existing, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("copying %s: %T is no object", o.GetName(), o)
	}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), existing)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil means that the object does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.GetName(), err)
	}
	return existing, nil
}

func (r *ClusterReconciler) apply(ctx context.Context, desired, observed client.Object) error {
	sent, err := r.applied.Apply(ctx, r.Client, fieldManager, desired, observed)
	if sent {
		writes.WithLabelValues(desired.GetObjectKind().GroupVersionKind().Kind).Inc()
	}
	return err
}
