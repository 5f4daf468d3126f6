package controlplane

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// checkFence records the management cluster before anything is done for a
// control plane, and checks whether another management cluster acts for it.
func (r *observer) checkFence(ctx context.Context, s *scope.Scope) error {
	recorded := s.ControlPlane.DeepCopy()
	if r.Fence.Record(recorded) {
		if err := r.Client.Patch(ctx, recorded, client.MergeFrom(s.ControlPlane)); err != nil {
			return fmt.Errorf("recording management cluster: %w", err)
		}
		s.ControlPlane = recorded
	}
	s.Fenced = r.Fence.Check(s.Cluster, s.ControlPlane)
	return nil
}
