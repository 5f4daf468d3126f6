package controlplane

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// fieldManager owns what a child is made with.
	fieldManager = "nova-control-plane"
	// metadataManager owns the labels and annotations that are passed on to
	// objects whose spec is never written again.
	metadataManager = "nova-control-plane-metadata"
)

// apply applies desired to the object that was observed, if that changes
// anything.
func (r *Reconciler) apply(ctx context.Context, manager string, desired, observed client.Object) error {
	_, err := r.applied.Apply(ctx, r.Client, manager, desired, observed)
	return err
}
