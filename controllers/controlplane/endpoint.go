package controlplane

import (
	"context"
)

// endpoint waits for the address that the API server is reached at.
func (r *Reconciler) endpoint(_ context.Context, s *scope) error {
	if !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		s.waiting = "Waiting for the Cluster's spec.controlPlaneEndpoint: set host and port there or in the infrastructure cluster"
	}
	return nil
}
