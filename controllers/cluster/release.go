package cluster

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
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

// remove removes the finalizer of the cluster once no machine needs it. If there are no machines, it
// does not read the hypervisor, so that a hypervisor that no longer exists does not block the
// deletion.
func (r *Reconciler[C]) remove(ctx context.Context, s *scope[C]) (ctrl.Result, error) {
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		var err error
		if s.remaining, err = r.machines(ctx, s, reader); err != nil {
			return ctrl.Result{}, err
		}
		if len(s.remaining) > 0 {
			// The machines are reconciled again when the hypervisor becomes available.
			return ctrl.Result{RequeueAfter: reconcile.PollInterval}, r.inspect(ctx, s)
		}
		// The cache may miss a new machine: read again from the API server.
	}
	s.released = controllerutil.RemoveFinalizer(s.infra, infrav1.ClusterFinalizer)
	return ctrl.Result{}, nil
}

// machines returns the names of the cluster's machines, sorted.
func (r *Reconciler[C]) machines(ctx context.Context, s *scope[C], reader client.Reader) ([]string, error) {
	label := s.infra.GetLabels()[clusterv1.ClusterNameLabel]
	if label == "" && s.cluster != nil {
		label = s.cluster.Name
	}
	if label == "" {
		return nil, nil // it never belonged to a Cluster, so it has no machines
	}
	return machineNames(ctx, reader, r.NewMachineList(), s.infra.GetNamespace(), client.MatchingLabels{clusterv1.ClusterNameLabel: label})
}
