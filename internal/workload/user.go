package workload

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// ManagersGroup is the group of all managers in workload clusters. Nothing is
	// bound to it: audit policies and flow schemas name it.
	ManagersGroup = "nova:managers"
	// grantGroup is the group of the certificate that writes permissions.
	grantGroup = "system:masters"
)

// User is the user that a manager is in workload clusters.
type User struct {
	// Name is the user name.
	Name string
	// Authority signs the user's certificates.
	Authority Authority
	// Permissions are the permissions of the user.
	Permissions Permissions

	granters reconcile.Memory[client.ObjectKey, granter]
}

// Authority signs client certificates for workload clusters.
type Authority interface {
	// ClusterCA returns the certificates of the cluster's CA.
	ClusterCA(ctx context.Context, cluster client.ObjectKey) ([]byte, error)
	// Client issues a client certificate.
	Client(ctx context.Context, cluster client.ObjectKey, request pki.ClientRequest) (pki.KeyPair, error)
}

// RESTConfig returns the client configuration for a kubeconfig, and when it has
// to be replaced: zero means never. If the CA that signed the certificate in the
// kubeconfig has its key in the management cluster, the configuration has a
// certificate of the manager's own user. Any other kubeconfig is used as it is.
func (u *User) RESTConfig(ctx context.Context, cluster client.ObjectKey, kubeconfig []byte) (*rest.Config, time.Time, error) {
	config, err := RESTConfig(kubeconfig)
	if err != nil || u == nil {
		return config, time.Time{}, err
	}
	signed, err := u.signed(ctx, cluster, config.CertData)
	if err != nil || !signed {
		return config, time.Time{}, err
	}
	own, err := u.certified(ctx, cluster, config, timelimits.Daily, ManagersGroup)
	if err != nil {
		return nil, time.Time{}, err
	}
	certificate, err := certs.DecodeCertPEM(own.CertData)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading the certificate of user %s: %w", u.Name, err)
	}
	now := time.Now()
	// Clusters that were not used for long may not exist any more.
	u.granters.ForgetIf(func(_ client.ObjectKey, g granter) bool { return now.Sub(g.last) > 2*timelimits.Hourly })
	with := func(do func(*granter)) { u.granters.Update(cluster, do) }
	grant := func(ctx context.Context) (bool, error) { return u.grant(ctx, cluster, config) }
	own.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return &granting{with: with, next: newLimiter(next), grant: grant}
	}
	return own, now.Add(certificate.NotAfter.Sub(now) / 2), nil
}

// signed reports whether a client certificate was signed by the cluster's CA,
// which the API server then trusts for other users too.
func (u *User) signed(ctx context.Context, cluster client.ObjectKey, data []byte) (bool, error) {
	certificate, err := certs.DecodeCertPEM(data)
	if len(data) == 0 || err != nil || certificate == nil {
		return false, nil //nolint:nilerr // the kubeconfig has a token, or is found to be unusable later
	}
	ca, err := u.Authority.ClusterCA(ctx, cluster)
	if _, invalid := errors.AsType[*pki.InvalidCertificateError](err); errors.Is(err, pki.ErrNotFound) || invalid {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading cluster CA: %w", err)
	}
	authorities, err := certutil.ParseCertsPEM(ca)
	// The time does not matter: an expired certificate was signed by the CA as well, and one may be
	// valid from some minutes before the CA was made.
	return err == nil && slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return certificate.CheckSignatureFrom(a) == nil }), nil
}

// certified returns config with a certificate of the user.
func (u *User) certified(ctx context.Context, cluster client.ObjectKey, config *rest.Config, ttl time.Duration, group string) (*rest.Config, error) {
	pair, err := u.Authority.Client(ctx, cluster, pki.ClientRequest{CommonName: u.Name, Organizations: []string{group}, TTL: ttl})
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate of user %s: %w", u.Name, err)
	}
	config = rest.CopyConfig(config)
	config.CertData, config.KeyData, config.BearerToken = pair.Certificate, pair.Key, ""
	return config, nil
}

// grant writes the user's permissions, and reports whether it changed anything.
func (u *User) grant(ctx context.Context, cluster client.ObjectKey, config *rest.Config) (bool, error) {
	config, err := u.certified(ctx, cluster, config, timelimits.LongGrace, grantGroup)
	if err != nil {
		return false, err
	}
	transport, next, err := newTransport(config)
	if err != nil {
		return false, err
	}
	defer transport.CloseIdleConnections()
	c, err := newRBACClient(config, &http.Client{Transport: next})
	if err != nil {
		return false, err
	}
	return u.Permissions.Write(ctx, u.Name, c)
}
