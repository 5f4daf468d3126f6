package certificates

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// ObserveFormer finds Secrets of a deleted control plane or Cluster with the same
// names, which are still to be deleted. They are garbage-collected shortly after their owner;
// adopting one would leave the new cluster without it.
func (r *Keeper) ObserveFormer(ctx context.Context, s *scope.Scope) error {
	if s.Initialized || len(s.Machines) > 0 {
		return nil
	}
	for _, purpose := range []secret.Purpose{
		secret.ClusterCA, secret.EtcdCA, secret.FrontProxyCA, secret.ServiceAccount, secret.Kubeconfig,
	} {
		key := s.Key()
		key.Name = secret.Name(s.ClusterName, purpose)
		found := &corev1.Secret{}
		err := r.Client.Get(ctx, key, found)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading Secret %s: %w", key.Name, err)
		}
		if ownedByFormer(s, found.OwnerReferences) {
			s.Requirements.FormerSecret = key.Name
			s.RequeueAfter(timelimits.ShortPoll)
			return nil
		}
	}
	return nil
}

// ownedByFormer reports whether an owner has the name of the control plane or of
// the Cluster and another UID.
func ownedByFormer(s *scope.Scope, owners []metav1.OwnerReference) bool {
	return slices.ContainsFunc(owners, func(ref metav1.OwnerReference) bool {
		switch ref.Kind {
		case scope.Kind:
			return ref.UID != s.ControlPlane.UID
		case scope.ClusterKind:
			return ref.UID != s.Cluster.UID
		default:
			return false
		}
	})
}
