package bootstrap

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

// findControlPlane reads the cluster's NovaControlPlane, which holds the cluster-wide settings. With
// another control plane provider there is none.
func (r *Reconciler) findControlPlane(ctx context.Context, s *scope) error {
	ref := s.cluster.Spec.ControlPlaneRef
	if ref.Kind != "NovaControlPlane" || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil
	}
	controlPlane := &controlplanev1.NovaControlPlane{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: ref.Name}, controlPlane)
	if apierrors.IsNotFound(err) {
		return &blockedError{
			waiting: true,
			reason:  bootstrapv1.WaitingForCertificatesReason,
			message: fmt.Sprintf("Waiting for NovaControlPlane %s", ref.Name),
		}
	}
	if err != nil {
		return fmt.Errorf("reading NovaControlPlane: %w", err)
	}
	s.controlPlane = controlPlane
	return nil
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
