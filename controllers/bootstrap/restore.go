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
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// readRestore reads the snapshot with which etcd starts on a machine that initializes a cluster again.
// Without the snapshot such a machine gets no bootstrap data: it would start with an empty etcd.
func (r *modeReader) readRestore(ctx context.Context, s *scope) error {
	if s.mode != bootstrap.Init {
		return nil
	}
	restore, err := initlock.ObserveRestore(ctx, r.live, s.cluster)
	if err != nil {
		return fmt.Errorf("reading the restore in progress: %w", err)
	}
	if restore.Name == "" {
		return nil
	}
	waiting := reconcile.Wait(bootstrapv1.WaitingForControlPlaneReason, "Waiting for the snapshot of NovaEtcdRestore %s", restore.Name).After(initLockRetry)
	if restore.Machine != s.machine.Name {
		return waiting
	}
	if len(externalEtcd(s.controlPlane)) > 0 {
		// Nothing is downloaded: the external etcd has the data.
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
		// The download URL is about to be renewed.
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

// secretOfRestore reads the Secret with a restore's snapshot. It returns nil if there is none. The
// Secret of a deleted restore exists a little longer than the restore, and must not be used for a new
// restore of the same name.
func (r *modeReader) secretOfRestore(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	restore := &controlplanev1.NovaEtcdRestore{}
	err := r.live.Get(ctx, key, restore)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // a Secret that does not exist yet is not an error
	}
	if err != nil {
		return nil, fmt.Errorf("reading NovaEtcdRestore %s: %w", key.Name, err)
	}
	secret := &corev1.Secret{}
	err = r.client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // a Secret that does not exist yet is not an error
	}
	if err != nil {
		return nil, fmt.Errorf("reading snapshot of restore %s: %w", key.Name, err)
	}
	if secret.Type != controlplanev1.EtcdRestoreSecretType || !metav1.IsControlledBy(secret, restore) {
		return nil, nil //nolint:nilnil // a Secret that does not exist yet is not an error
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

// externalEtcd returns the endpoints of an external etcd.
func externalEtcd(controlPlane *controlplanev1.NovaControlPlane) []string {
	if controlPlane == nil {
		return nil
	}
	return controlPlane.Spec.Etcd.External.Endpoints
}
