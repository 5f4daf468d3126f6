package bootstrap

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// allow records the management cluster before anything is done for a NovaConfig. If another management
// cluster manages the Cluster, the NovaConfig is blocked.
func (r *Reconciler) allow(ctx context.Context, s *scope) error {
	switch err := joining.Allowed(ctx, r.Client, r.Fence, s.cluster); {
	case fence.IsOther(err):
		s.blocked = reconcile.Blocked(bootstrapv1.OtherManagementClusterReason, "%s", fence.Condition(err).Message)
		return nil
	case err != nil:
		return err
	}
	recorded := s.config.DeepCopy()
	if !r.Fence.Record(recorded) {
		return nil
	}
	if err := r.Client.Patch(ctx, recorded, client.MergeFrom(s.config)); err != nil {
		return fmt.Errorf("recording management cluster: %w", err)
	}
	s.config = recorded
	return nil
}
