package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// waitForFormerSecrets waits while the cluster's certificates still belong to a former cluster of the
// same name. The garbage collector deletes them a little later; a machine that booted with them would
// never join.
func (r *Reconciler) waitForFormerSecrets(ctx context.Context, s *scope) error {
	if s.controlPlane == nil {
		return nil
	}
	found := &corev1.Secret{}
	name := secret.Name(s.cluster.Name, secret.ClusterCA)
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if err == nil && s.ownedByFormer(found.OwnerReferences) {
		return &blockedError{
			waiting: true,
			reason:  bootstrapv1.WaitingForCertificatesReason,
			message: fmt.Sprintf("Waiting for the certificates of a former cluster in Secret %s to be deleted with it", name),
		}
	}
	return nil
}

// ownedByFormer reports whether an owner has the name of the cluster's control plane or of the
// Cluster, but is another object.
func (s *scope) ownedByFormer(owners []metav1.OwnerReference) bool {
	for _, owner := range owners {
		switch {
		case owner.Kind == "NovaControlPlane" && owner.UID != s.controlPlane.UID,
			owner.Kind == "Cluster" && owner.UID != s.cluster.UID:
			return true
		}
	}
	return false
}
