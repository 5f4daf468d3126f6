package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// adopted are the Secrets of a cluster that its control plane makes.
var adopted = []secret.Purpose{secret.ClusterCA, secret.EtcdCA, secret.FrontProxyCA, secret.ServiceAccount, secret.Kubeconfig}

// adopt takes back what has no owner any more, as backups restore it: nothing
// else would delete it with the cluster, and clusterctl would not move it.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	for _, purpose := range adopted {
		if err := r.adoptSecret(ctx, s, secret.Name(s.clusterName, purpose)); err != nil {
			return err
		}
	}
	if err := initlock.Adopt(ctx, r.Client, s.cluster); err != nil {
		return fmt.Errorf("owning init lock: %w", err)
	}
	return nil
}

// adoptSecret owns a Secret again that a provider made, which its type says. One
// of any other type is a user's, as with KubeadmControlPlane.
func (r *Reconciler) adoptSecret(ctx context.Context, s *scope, name string) error {
	found := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if found.Type != clusterv1.ClusterSecretType || found.Labels[clusterv1.ClusterNameLabel] != s.clusterName || len(found.OwnerReferences) > 0 {
		return nil
	}
	found.OwnerReferences = []metav1.OwnerReference{s.owner()}
	if err := r.Client.Update(ctx, found); err != nil {
		return fmt.Errorf("owning Secret %s: %w", name, err)
	}
	return nil
}

// lost reports whether a machine was this control plane's and has lost its
// owner. It is applied with its owner again, like with all else that it is to
// have.
func lost(machine *clusterv1.Machine, controlPlane *controlplanev1.NovaControlPlane) bool {
	return metav1.GetControllerOf(machine) == nil &&
		machine.Labels[clusterv1.MachineControlPlaneNameLabel] == format.MustFormatValue(controlPlane.Name)
}
