package bootstrap

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Prepare performs the steps of a pass that precede the decisions about requests.
func (r *RequestReconciler) Prepare(ctx context.Context, cluster *clusterv1.Cluster, workloadClient client.Client) error {
	if err := allowJoin(ctx, workloadClient); err != nil {
		return err
	}
	return r.bindRenewals(ctx, &clusterFacts{cluster: cluster, workload: workloadClient})
}
