package bootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// readRestore reads what etcd starts with on a machine that initialises a
// cluster again. Without it such a machine is told nothing: it would begin with
// an empty etcd.
func (r *Reconciler) readRestore(ctx context.Context, s *scope) error {
	if s.mode != bootstrap.Init {
		return nil
	}
	restore, err := initlock.ObserveRestore(ctx, r.APIReader, s.cluster)
	if err != nil {
		return fmt.Errorf("reading which restore goes on: %w", err)
	}
	if restore.Name == "" {
		return nil
	}
	waiting := &obstacle{
		waiting: true,
		again:   untold,
		reason:  bootstrapv1.WaitingForControlPlaneReason,
		message: fmt.Sprintf("Waiting for the snapshot of NovaEtcdRestore %s", restore.Name),
	}
	if restore.Machine != s.machine.Name {
		return waiting
	}
	secret := &corev1.Secret{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: restore.Name}, secret)
	if apierrors.IsNotFound(err) {
		return waiting
	}
	if err != nil {
		return fmt.Errorf("reading snapshot of restore %s: %w", restore.Name, err)
	}
	expires, err := time.Parse(time.RFC3339, string(secret.Data[controlplanev1.EtcdRestoreExpiresKey]))
	if secret.Type != controlplanev1.EtcdRestoreSecretType || err != nil || !expires.After(time.Now()) {
		// It is about to be renewed.
		return waiting
	}
	s.restoreExpires = expires
	s.restore = &bootstrap.Restore{
		Snapshot: string(secret.Data[controlplanev1.EtcdRestoreSnapshotKey]),
		URL:      string(secret.Data[controlplanev1.EtcdRestoreURLKey]),
		SHA256:   string(secret.Data[controlplanev1.EtcdRestoreSHA256Key]),
		CA:       secret.Data[controlplanev1.EtcdRestoreCAKey],
	}
	return nil
}

// externalEtcd are the endpoints of an etcd that somebody else runs.
func externalEtcd(controlPlane *controlplanev1.NovaControlPlane) []string {
	if controlPlane == nil {
		return nil
	}
	return controlPlane.Spec.Etcd.External.Endpoints
}
