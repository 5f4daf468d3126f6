package bootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if len(externalEtcd(s.controlPlane)) > 0 {
		// Nothing is downloaded: external etcd has the data.
		s.restore = &bootstrap.Restore{}
		return nil
	}
	secret, err := r.secretOfRestore(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: restore.Name})
	if err != nil {
		return err
	}
	if secret == nil {
		return waiting
	}
	expires, err := time.Parse(time.RFC3339, string(secret.Data[controlplanev1.EtcdRestoreExpiresKey]))
	if err != nil || !expires.After(time.Now()) {
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

// secretOfRestore reads the Secret that tells of a restore's snapshot, nil if
// there is none. One of a restore that was deleted is there a little longer than
// that, and is not taken for the one of a restore that was made under its name.
func (r *Reconciler) secretOfRestore(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	restore := &controlplanev1.NovaEtcdRestore{}
	err := r.APIReader.Get(ctx, key, restore)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Not yet is no failure.
	}
	if err != nil {
		return nil, fmt.Errorf("reading NovaEtcdRestore %s: %w", key.Name, err)
	}
	secret := &corev1.Secret{}
	err = r.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Not yet is no failure.
	}
	if err != nil {
		return nil, fmt.Errorf("reading snapshot of restore %s: %w", key.Name, err)
	}
	if secret.Type != controlplanev1.EtcdRestoreSecretType || !metav1.IsControlledBy(secret, restore) {
		return nil, nil //nolint:nilnil // Not yet is no failure.
	}
	return secret, nil
}

// localEtcd returns the settings of the etcd member of a control plane machine.
func localEtcd(controlPlane *controlplanev1.NovaControlPlane) controlplanev1.LocalEtcdSpec {
	if controlPlane == nil {
		return controlplanev1.LocalEtcdSpec{}
	}
	return controlPlane.Spec.Etcd.Local
}

// externalEtcd are the endpoints of an etcd that somebody else runs.
func externalEtcd(controlPlane *controlplanev1.NovaControlPlane) []string {
	if controlPlane == nil {
		return nil
	}
	return controlPlane.Spec.Etcd.External.Endpoints
}
