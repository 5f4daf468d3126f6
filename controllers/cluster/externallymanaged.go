package cluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// reconcileExternallyManaged reconciles an externally managed cluster: its spec, status and finalizers
// belong to another controller, which also judges the hypervisor. The reconciler generates the cluster
// ID, without which the cluster can have no machines, and removes its own earlier conditions and
// finalizer: otherwise no controller would update the conditions or ever remove the finalizer.
func (r *Reconciler[C]) reconcileExternallyManaged(ctx context.Context, s *scope[C]) error {
	if annotations.HasPaused(s.infra) || s.cluster != nil && annotations.IsPaused(s.cluster, s.infra) {
		return nil
	}
	if controllerutil.ContainsFinalizer(s.infra, infrav1.ClusterFinalizer) {
		return r.release(ctx, s)
	}
	if s.cluster == nil {
		return nil
	}
	_, err := r.ensureClusterID(ctx, s)
	return err
}

// release removes our conditions and finalizer from the cluster. It removes the finalizer last, so that
// a crash leaves none of the rest behind.
func (r *Reconciler[C]) release(ctx context.Context, s *scope[C]) error {
	helper, err := patch.NewHelper(s.infra, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	for _, condition := range owned.Conditions {
		conditions.Delete(s.infra, condition)
	}
	controllerutil.RemoveFinalizer(s.infra, infrav1.ClusterFinalizer)
	if err := helper.Patch(ctx, s.infra, owned); err != nil {
		return fmt.Errorf("removing conditions and finalizer: %w", err)
	}
	return nil
}
