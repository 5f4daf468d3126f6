package pki

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Adopt makes owner the owner of a cluster's Secret if a provider created it
// and it has no owner, which is the case after a restore from a backup:
// otherwise nothing would delete it with the cluster, and clusterctl would not
// move it. The type shows that a provider created it; a Secret of any other
// type belongs to a user, as with KubeadmControlPlane.
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
