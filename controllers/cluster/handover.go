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

// handOver sees to a cluster that others manage: spec, status and finalizers
// are theirs, and so is the hypervisor to judge. It gets its ID, without which
// it can have no machines, and what is ours from before goes: nobody would
// keep the conditions true or ever take the finalizer away.
func (r *Reconciler[C]) handOver(ctx context.Context, s *scope[C]) error {
	if annotations.HasPaused(s.infra) || s.cluster != nil && annotations.IsPaused(s.cluster, s.infra) {
		return nil
	}
	if controllerutil.ContainsFinalizer(s.infra, infrav1.ClusterFinalizer) {
		return r.letGo(ctx, s)
	}
	if s.cluster == nil {
		return nil
	}
	_, err := r.mint(ctx, s)
	return err
}

// letGo takes away what the cluster has of ours. The finalizer goes last, so
// that a crash leaves nothing of the rest.
func (r *Reconciler[C]) letGo(ctx context.Context, s *scope[C]) error {
	helper, err := patch.NewHelper(s.infra, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	for _, condition := range owned.Conditions {
		conditions.Delete(s.infra, condition)
	}
	controllerutil.RemoveFinalizer(s.infra, infrav1.ClusterFinalizer)
	if err := helper.Patch(ctx, s.infra, owned); err != nil {
		return fmt.Errorf("handing the cluster over: %w", err)
	}
	return nil
}
