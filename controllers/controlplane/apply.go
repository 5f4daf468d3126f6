package controlplane

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

// forget drops what is remembered of a machine that goes: what was applied to it
// and to what belongs to it, and to whom its address was given.
func (r *Reconciler) forget(s *scope, machine *clusterv1.Machine) {
	r.applied.Forget(machine.UID)
	r.handovers.forget(machine.UID)
	if infra := s.infra[machine.Name]; infra != nil {
		r.applied.Forget(infra.UID)
	}
	if config := s.configs[machine.Name]; config != nil {
		r.applied.Forget(config.UID)
	}
}
