package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	authorities "github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// issuer issues the credentials of machines.
type issuer struct {
	client    client.Client
	authority pki.Authority
	// signer signs for nodes. If nil, kubeadm and kube-controller-manager do in all clusters.
	signer pki.Signer
	// rotator reads the state of CAs that were rotated. It may be nil.
	rotator pki.Rotator
	// workloadClusters connects to the workload clusters whose CA key is not available here. It may
	// be nil.
	workloadClusters clustercache.ClusterCache
	// ttl is the validity of a machine's certificate. If 0, DefaultCredentialTTL is used.
	ttl time.Duration
}

// issueCredentials issues the credentials with which the machine authenticates, and the certificates
// that a control plane machine requires before it starts.
func (r *issuer) issueCredentials(ctx context.Context, s *scope) error {
	// First: if the CAs change after it, the machine has newer ones than it reports, and is replaced.
	if err := r.findAuthorities(ctx, s); err != nil {
		return err
	}
	if s.mode != bootstrap.Init {
		if err := r.issueJoin(ctx, s); err != nil {
			return withoutCertificates(err)
		}
	}
	if s.mode == bootstrap.JoinWorker {
		return nil
	}
	if err := r.findSigner(ctx, s); err != nil {
		return err
	}
	if s.keyless && s.mode == bootstrap.Init {
		if err := r.issueLogin(ctx, s); err != nil {
			return err
		}
	}
	files, err := r.authority.ControlPlaneFiles(ctx, s.clusterKey())
	if err != nil {
		return withoutCertificates(fmt.Errorf("reading control plane certificates: %w", err))
	}
	for _, f := range files {
		if s.keyless && strings.HasSuffix(f.Path, "ca.key") {
			continue
		}
		s.pki = append(s.pki, bootstrap.File{Path: f.Path, Permissions: f.Permissions, Content: f.Content})
	}
	return nil
}

// findSigner finds out whether the nodes of a cluster have their certificates signed elsewhere.
func (r *issuer) findSigner(ctx context.Context, s *scope) (err error) {
	if r.signer == nil {
		return nil
	}
	if s.keyless, err = r.signer.Signs(ctx, s.clusterKey()); err != nil {
		return withoutCertificates(fmt.Errorf("finding the signer of the cluster: %w", err))
	}
	return nil
}

// findAuthorities reads the CAs of a cluster whose CAs were rotated.
func (r *issuer) findAuthorities(ctx context.Context, s *scope) error {
	if r.rotator == nil || s.controlPlane == nil {
		return nil
	}
	state, err := r.rotator.Rotation(ctx, s.clusterKey())
	if err != nil {
		return withoutCertificates(fmt.Errorf("reading CAs: %w", err))
	}
	if state.ID == "" {
		return nil
	}
	s.authorities = &nodeconfig.Authorities{ID: state.ID, Kubernetes: string(state.Bundles[authorities.Kubernetes])}
	if s.mode != bootstrap.JoinWorker {
		s.authorities.Etcd, s.authorities.FrontProxy = string(state.Bundles[authorities.Etcd]), string(state.Bundles[authorities.FrontProxy])
	}
	return nil
}

// issueLogin issues the credentials with which the machine that initializes the cluster has its
// certificates signed. No cluster exists yet in which it could request them.
func (r *issuer) issueLogin(ctx context.Context, s *scope) error {
	s.lifetime = min(cmp.Or(r.ttl, DefaultCredentialTTL), DefaultCredentialTTL)
	login, err := r.signer.NodeLogin(ctx, s.clusterKey(), s.lifetime)
	if err != nil {
		return withoutCertificates(fmt.Errorf("issuing credentials to have certificates signed: %w", err))
	}
	if login == nil {
		s.keyless = false // kubeadm makes the certificates of this machine
		return nil
	}
	s.vault = &nodeconfig.Vault{
		Server: login.Server, Namespace: login.Namespace, CA: string(login.CABundle), AuthPath: login.AuthPath, RoleID: login.RoleID,
		WrappedSecretID: login.WrappedSecretID, MountPath: login.MountPath,
	}
	return nil
}

// issueJoin issues the client certificate that replaces a bootstrap token. Only this machine gets it.
func (r *issuer) issueJoin(ctx context.Context, s *scope) error {
	ca, err := r.authority.ClusterCA(ctx, s.clusterKey())
	if err != nil {
		keyless, refused := r.keylessCA(ctx, s)
		switch {
		case refused != nil:
			return refused
		case keyless != nil:
			return r.issueToken(ctx, s, keyless)
		}
		return fmt.Errorf("reading cluster certificate: %w", err)
	}
	r.boundJoin(s, time.Now())
	pair, err := r.authority.Client(ctx, s.clusterKey(), pki.ClientRequest{
		CommonName:    joining.UserPrefix + string(s.joiner()),
		Organizations: []string{joining.Group},
		TTL:           s.lifetime,
	})
	if err != nil {
		return fmt.Errorf("issuing join certificate: %w", err)
	}
	s.join = &bootstrap.JoinCredentials{CA: ca, Certificate: pair.Certificate, Key: pair.Key}
	return nil
}

// boundJoin sets how long a machine may join. The credential of a machine that will be an etcd member
// expires when its control plane stops expecting the machine to join. The clock of the machine does
// not decide this, because an unexpected member could cost the quorum. The time counts from the start
// of the machine, which may have to wait for its hypervisor: until then the credential is renewed at
// half of its life.
func (r *issuer) boundJoin(s *scope, now time.Time) {
	s.lifetime = cmp.Or(r.ttl, DefaultCredentialTTL)
	if s.mode != bootstrap.JoinControlPlane || s.controlPlane == nil || len(externalEtcd(s.controlPlane)) > 0 {
		return
	}
	s.lifetime = min(s.lifetime, 2*s.controlPlane.Spec.Platform.GetJoinTimeout())
	s.joinBy = now.Add(s.lifetime)
}

// recordJoinBy records the expiry of the credential before the machine can have it.
func (r *issuer) recordJoinBy(ctx context.Context, s *scope) error {
	if s.joinBy.IsZero() {
		return nil
	}
	updated := s.config.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, bootstrapv1.JoinByAnnotation, s.joinBy.UTC().Format(time.RFC3339))
	if err := r.client.Patch(ctx, updated, client.MergeFrom(s.config)); err != nil {
		return fmt.Errorf("recording until when the machine may join: %w", err)
	}
	return nil
}

// withoutCertificates distinguishes a cluster whose certificates are missing or broken from other
// failures.
func withoutCertificates(err error) error {
	var invalid *pki.InvalidCertificateError
	switch {
	case errors.Is(err, pki.ErrNotFound):
		return reconcile.Wait(bootstrapv1.WaitingForCertificatesReason, "Waiting for the control plane provider to create the cluster's certificates")
	case errors.As(err, &invalid):
		return reconcile.Blocked(bootstrapv1.WaitingForCertificatesReason, "%s", reconcile.Sentence(invalid))
	}
	if reason := pki.VaultReason(err); reason != "" {
		return reconcile.Blocked(reason, "%s", reconcile.Sentence(err))
	}
	return err
}
