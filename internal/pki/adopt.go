package pki

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Adopt gives a Secret of a cluster to owner if a provider made it and it has
// no owner any more, as backups restore it: nothing else would delete it with
// the cluster, and clusterctl would not move it. That a provider made it its
// type says; one of any other type is a user's, as with KubeadmControlPlane.
func Adopt(ctx context.Context, c client.Client, secret *corev1.Secret, cluster string, owner metav1.OwnerReference) error {
	if secret.Type != clusterv1.ClusterSecretType || secret.Labels[clusterv1.ClusterNameLabel] != cluster || len(secret.OwnerReferences) > 0 {
		return nil
	}
	secret.OwnerReferences = []metav1.OwnerReference{owner}
	if err := c.Update(ctx, secret); err != nil {
		return fmt.Errorf("owning Secret %s: %w", secret.Name, err)
	}
	return nil
}
