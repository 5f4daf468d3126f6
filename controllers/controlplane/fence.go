package controlplane

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

// checkFence records the management cluster before anything is done for a
// control plane, and checks whether another management cluster acts for it.
func (r *observer) checkFence(ctx context.Context, s *scope) error {
	recorded := s.controlPlane.DeepCopy()
	if r.Fence.Record(recorded) {
		if err := r.Client.Patch(ctx, recorded, client.MergeFrom(s.controlPlane)); err != nil {
			return fmt.Errorf("recording management cluster: %w", err)
		}
		s.controlPlane = recorded
	}
	s.fenced = r.Fence.Check(s.cluster, s.controlPlane)
	return nil
}

// readOnly records the observed initialization. It changes neither the workload
// cluster nor machines.
func (r *observer) readOnly(ctx context.Context, s *scope) error {
	if s.controlPlane.DeletionTimestamp.IsZero() {
		return r.initialization(ctx, s)
	}
	s.deleting = fence.Condition(s.fenced).Message
	return nil
}
