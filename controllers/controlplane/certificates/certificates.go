package certificates

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// ManagerUser is the user of this manager in workload clusters.
	ManagerUser = "nova-control-plane"
	// AdminsGroup is the group of the user in kubeconfigs. It is bound to
	// cluster-admin like kubeadm's own group, which kube-vip and other
	// components of nodes use: this one can be revoked without affecting them.
	AdminsGroup = "nova:cluster-admins"
)

// Keeper keeps the certificate authorities, the kubeconfig and the
// connection to external etcd.
type Keeper struct {
	*scope.Config

	// externals caches the state of external etcds by control plane, so that an
	// unreachable etcd does not delay each reconcile.
	externals reconcile.Memory[client.ObjectKey, externalAnswer]
}

// Ensure creates the cluster's certificate authorities once. After the
// initialization it only checks that they exist: the nodes would not trust new
// ones.
func (r *Keeper) Ensure(ctx context.Context, s *scope.Scope) error {
	var err error
	if s.Initialized {
		err = r.Authority.Check(ctx, s.Key(), s.Owner())
	} else {
		err = r.Authority.Ensure(ctx, s.Key(), s.Owner(), s.ControlPlane.Spec.Platform.GetCACertificateValidity())
	}
	s.Certificates = scope.CertificatesState{Known: true, Err: err}
	var invalid *pki.InvalidCertificateError
	switch {
	case err == nil:
		if !s.Initialized && !conditions.IsTrue(s.ControlPlane, controlplanev1.CertificatesAvailableCondition) {
			r.Event(s, corev1.EventTypeNormal, "CertificatesAvailable", "Certificates", "The cluster's certificates are available")
		}
		return nil
	case s.Initialized && scope.ExternalEtcd(s) && errors.Is(err, pki.ErrExternalClient):
		s.Certificates.BlocksJoinsOnly, s.JoinBlocked = true, reconcile.Sentence(err)
		s.RequeueAfter(timelimits.LongPoll)
		r.Warn(s, controlplanev1.CertificatesInvalidEventReason, "Certificates", err)
		return nil
	case s.Initialized:
		// The nodes have their certificates. Only machines that have not joined
		// yet need these Secrets.
		s.Certificates.BlocksJoinsOnly, s.JoinBlocked = true, Message(err)
		s.Failures = append(s.Failures, fmt.Errorf("checking certificates: %w", err))
		switch {
		case errors.As(err, &invalid):
			r.Warn(s, controlplanev1.CertificatesInvalidEventReason, "Certificates", invalid)
		case errors.Is(err, pki.ErrNotFound):
			r.Event(s, corev1.EventTypeWarning, controlplanev1.CertificatesLostEventReason, "Certificates",
				"A certificate Secret of a running cluster is missing, restore it from a backup")
		}
		return nil
	case errors.As(err, &invalid):
		r.Warn(s, controlplanev1.CertificatesInvalidEventReason, "Certificates", invalid)
		return fmt.Errorf("checking certificates: %w", err)
	default:
		r.warnVault(s, err)
		return fmt.Errorf("ensuring certificates: %w", err)
	}
}

// warnVault reports an error about a StarVault.
func (r *Keeper) warnVault(s *scope.Scope, err error) {
	if reason := pki.VaultReason(err); reason != "" {
		r.Warn(s, reason, "Certificates", err)
	}
}

// Message returns the problem with the certificates.
func Message(err error) string {
	if errors.Is(err, pki.ErrNotFound) {
		return "A certificate Secret of the running cluster is missing, restore it from a backup: " + err.Error()
	}
	return reconcile.Sentence(err)
}

// Forget deletes the state of a deleted control plane.
func (r *Keeper) Forget(of client.ObjectKey) {
	r.externals.Forget(of)
}

// Cached returns the number of external etcds whose state is cached.
func (r *Keeper) Cached() int {
	return r.externals.Len()
}
