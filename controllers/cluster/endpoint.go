package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// endpoint returns the control plane endpoint of the cluster, or the zero value if it is not known.
func (s *scope[C]) endpoint() clusterv1.APIEndpoint {
	spec, _ := s.infra.Common()
	if !spec.ControlPlaneEndpoint.IsValid() && s.cluster != nil {
		return s.cluster.Spec.ControlPlaneEndpoint
	}
	return spec.ControlPlaneEndpoint
}

// findDuplicateEndpoint describes another cluster on the same hypervisor with the same control plane
// endpoint. It returns an empty string if there is none. Machines of both would announce the address, so
// the workers of one could reach the API servers of the other. list is an empty list of clusters.
func findDuplicateEndpoint[C Object](ctx context.Context, c client.Reader, list client.ObjectList, s *scope[C]) (string, error) {
	all, err := reconcile.Select(ctx, c, list, metav1.NamespaceAll, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", err
	}
	endpoint, pinned := s.endpoint(), s.infra.GetAnnotations()[infrav1.HypervisorIDAnnotation]
	for _, o := range all {
		other, ok := o.(C)
		if !ok || other.GetUID() == s.infra.GetUID() || !endpoint.IsValid() || pinned == "" {
			continue
		}
		if spec, _ := other.Common(); spec.ControlPlaneEndpoint != endpoint || other.GetAnnotations()[infrav1.HypervisorIDAnnotation] != pinned {
			continue
		}
		// The names in another namespace must not be shown to the users of this one.
		owner := "a cluster of another namespace"
		if other.GetNamespace() == s.infra.GetNamespace() {
			owner = fmt.Sprintf("the cluster %q", other.GetName())
		}
		return fmt.Sprintf("The control plane endpoint %s is also that of %s on the same hypervisor", endpoint.String(), owner), nil
	}
	return "", nil
}

// reportEndpoint sets the condition for an endpoint that two clusters use. Otherwise the condition is
// absent.
func (s *scope[C]) reportEndpoint() {
	if s.duplicateEndpoint == "" {
		conditions.Delete(s.infra, infrav1.EndpointUniqueCondition)
		return
	}
	conditions.Set(s.infra, metav1.Condition{
		Type: infrav1.EndpointUniqueCondition, Status: metav1.ConditionFalse, Reason: infrav1.EndpointInUseReason, Message: s.duplicateEndpoint,
	})
}
