package puppet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/enrollment"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

const (
	// revocationTimeout is the longest time for which a revocation delays the deletion
	// of a Machine. A Puppet server starts in less.
	revocationTimeout = 5 * time.Minute
	// revocationRetry is the time until a revocation that failed is tried again.
	revocationRetry = 15 * time.Second
)

// Revoker revokes the certificates of machines that are deleted.
type Revoker struct {
	// Client reads Secrets and patches NovaConfigs.
	Client client.Client
	// Recorder records events.
	Recorder events.EventRecorder
	// Namespace is the namespace of the manager, with RevocationSecret.
	Namespace string
}

// Hold adds the finalizer before the first token is issued.
func (r *Revoker) Hold(ctx context.Context, config *bootstrapv1.NovaConfig) error {
	held := config.DeepCopy()
	if !controllerutil.AddFinalizer(held, bootstrapv1.PuppetFinalizer) {
		return nil
	}
	if err := r.Client.Patch(ctx, held, client.MergeFrom(config)); err != nil {
		return fmt.Errorf("adding finalizer: %w", err)
	}
	return nil
}

// Delete revokes the certificate of a machine whose NovaConfig is deleted, and removes
// the finalizer. The Machine is nil if it does not exist. With foreign set, another
// management cluster manages the machine, and nothing is revoked.
func (r *Revoker) Delete(ctx context.Context, config *bootstrapv1.NovaConfig, machine *clusterv1.Machine, foreign bool) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(config, bootstrapv1.PuppetFinalizer) {
		return ctrl.Result{}, nil
	}
	// The name has the UID of the Machine from the API server: a name that is stored in
	// the NovaConfig would let its owner revoke other certificates.
	if !foreign && machine != nil && !machine.DeletionTimestamp.IsZero() {
		certname := enrollment.Certname(machine.Name, string(machine.UID))
		revoked, err := r.revoke(ctx, certname)
		switch {
		case err != nil && time.Since(config.DeletionTimestamp.Time) < revocationTimeout:
			r.event(machine, corev1.EventTypeWarning, bootstrapv1.PuppetRevocationFailedEventReason,
				fmt.Sprintf("Certificate %s is not revoked yet: %s", certname, reconcile.Sentence(err)))
			return ctrl.Result{RequeueAfter: revocationRetry}, nil
		case err != nil:
			r.event(machine, corev1.EventTypeWarning, bootstrapv1.PuppetCertificateKeptEventReason,
				fmt.Sprintf("Certificate %s was not revoked within %s, and the Machine is deleted without: %s", certname, revocationTimeout, reconcile.Sentence(err)))
		case revoked:
			r.event(machine, corev1.EventTypeNormal, bootstrapv1.PuppetCertificateRevokedEventReason, fmt.Sprintf("Certificate %s was revoked", certname))
		}
	}
	released := config.DeepCopy()
	controllerutil.RemoveFinalizer(released, bootstrapv1.PuppetFinalizer)
	if err := r.Client.Patch(ctx, released, client.MergeFrom(config)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("removing finalizer: %w", err)) //nolint:wrapcheck // it is wrapped
	}
	return ctrl.Result{}, nil
}

// revoke revokes a certificate at the server of the Secret. Without the Secret nothing
// is revoked.
func (r *Revoker) revoke(ctx context.Context, certname string) (bool, error) {
	if r.Namespace == "" {
		return false, nil
	}
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: RevocationSecret}, secret)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading Secret %s: %w", RevocationSecret, err)
	}
	ca, err := newAuthority(secret)
	if err != nil {
		return false, fmt.Errorf("reading Secret %s: %w", RevocationSecret, err)
	}
	return ca.revoke(ctx, certname)
}

func (r *Revoker) event(machine *clusterv1.Machine, kind, reason, note string) {
	r.Recorder.Eventf(machine, nil, kind, reason, "Revoke", "%s", note)
}
