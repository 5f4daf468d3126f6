package cluster

import (
	"context"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

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
	found, err := reconcile.Select(ctx, reader, r.NewMachineList(), s.infra.GetNamespace(), client.MatchingLabels{clusterv1.ClusterNameLabel: label})
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, o := range found {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names, nil
}
