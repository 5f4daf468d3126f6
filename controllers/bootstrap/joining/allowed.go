package joining

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

// Allowed returns an error if another management cluster manages a Cluster, that is, if one of its
// NovaConfigs was recorded there. Credentials are neither issued nor renewed then, and certificate
// requests are left to that management cluster.
func Allowed(ctx context.Context, reader client.Reader, f fence.Fence, cluster *clusterv1.Cluster) error {
	list := &bootstrapv1.NovaConfigList{}
	err := reader.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing NovaConfigs: %w", err)
	}
	recorded := make([]metav1.Object, 0, len(list.Items))
	for i := range list.Items {
		recorded = append(recorded, &list.Items[i])
	}
	return f.Check(cluster, recorded...)
}
