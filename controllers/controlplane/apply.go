package controlplane

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

const (
	// fieldManager owns the fields that a child is created with.
	fieldManager = "nova-control-plane"
	// metadataManager owns the labels and annotations that are passed on to
	// objects whose spec is never written again.
	metadataManager = "nova-control-plane-metadata"
)

// apply applies desired if that changes the observed object.
func (r *maker) apply(ctx context.Context, manager string, desired, observed client.Object) error {
	_, err := r.applied.Apply(ctx, r.Client, manager, desired, observed)
	return err
}

// forget deletes the applied configuration of a machine that is being deleted
// and of its objects.
func (r *maker) forget(s *scope.Scope, machine *clusterv1.Machine) {
	r.applied.Forget(machine.UID)
	if infra := s.Infra[machine.Name]; infra != nil {
		r.applied.Forget(infra.UID)
	}
	if config := s.Configs[machine.Name]; config != nil {
		r.applied.Forget(config.UID)
	}
}
