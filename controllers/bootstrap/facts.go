package bootstrap

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// clusterFacts reads the facts of a machine's cluster.
type clusterFacts struct{ client client.Reader }

// findControlPlane reads the cluster's NovaControlPlane, which holds the cluster-wide settings. With
// another control plane provider there is none.
func (r *clusterFacts) findControlPlane(ctx context.Context, s *scope) error {
	ref := s.cluster.Spec.ControlPlaneRef
	if ref.Kind != "NovaControlPlane" || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil
	}
	controlPlane := &controlplanev1.NovaControlPlane{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: ref.Name}, controlPlane)
	if apierrors.IsNotFound(err) {
		return reconcile.Wait(bootstrapv1.WaitingForCertificatesReason, "Waiting for NovaControlPlane %s", ref.Name)
	}
	if err != nil {
		return fmt.Errorf("reading NovaControlPlane: %w", err)
	}
	s.controlPlane = controlPlane
	return nil
}

// waitForFormerSecrets waits while the cluster's certificates still belong to a former cluster of the
// same name. The garbage collector deletes them a little later; a machine that booted with them would
// never join.
func (r *clusterFacts) waitForFormerSecrets(ctx context.Context, s *scope) error {
	if s.controlPlane == nil {
		return nil
	}
	found := &corev1.Secret{}
	name := secret.Name(s.cluster.Name, secret.ClusterCA)
	err := r.client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if err == nil && s.ownedByFormer(found.OwnerReferences) {
		return reconcile.Wait(bootstrapv1.WaitingForCertificatesReason, "Waiting for the certificates of a former cluster in Secret %s to be deleted with it", name)
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

// platform returns the cluster-wide settings: those of the NovaConfig if set, or else those of the
// control plane.
func platform(config *bootstrapv1.NovaConfig, controlPlane *controlplanev1.NovaControlPlane) bootstrapv1.PlatformSpec {
	if own := config.Spec.Platform; !isZero(own) || controlPlane == nil {
		return own
	}
	return controlPlane.Spec.Platform
}

// kubeVIP returns the settings of kube-vip, or nil if kube-vip does not provide the endpoint.
func kubeVIP(controlPlane *controlplanev1.NovaControlPlane) *bootstrap.KubeVIP {
	if controlPlane == nil || controlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP {
		return nil
	}
	settings := &controlPlane.Spec.Endpoint.KubeVIP
	return &bootstrap.KubeVIP{Image: settings.GetImage(), Interface: settings.Interface}
}

func isZero[T any](value T) bool { return reflect.ValueOf(value).IsZero() }
