package inplace

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// SecretName is the Secret with the certificate, and the name of the Service.
	// The ExtensionConfig names both.
	SecretName = "nova-bootstrap-runtime-extension"
	caKey      = "ca.crt"

	// certificateCheck is the interval in which the certificate is read again, and
	// certificateRetry the time after a failure.
	certificateCheck = time.Hour
	certificateRetry = 5 * time.Second
	// renewBefore is the remaining validity with which the certificate is
	// renewed.
	renewBefore = 60 * 24 * time.Hour
)

// certificate is the serving certificate in a Secret, which all replicas share.
// Cluster API reads the CA from the Secret.
type certificate struct {
	client client.Client
	reader client.Reader
	key    client.ObjectKey
	// host is an address that the certificate is also valid for, if it is an IP
	// address.
	host string

	current atomic.Pointer[tls.Certificate]
}

// Start implements manager.Runnable.
func (c *certificate) Start(ctx context.Context) error {
	for {
		next := certificateCheck
		if err := c.ensure(ctx, time.Now()); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Preparing the certificate of the runtime extension")
			next = certificateRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait.Jitter(next, 0.1)): //nolint:mnd // replicas do not renew at once
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas serve.
func (c *certificate) NeedLeaderElection() bool { return false }

// get returns the certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := c.current.Load(); current != nil {
		return current, nil
	}
	return nil, errors.New("the certificate of the runtime extension is not ready")
}

// ensure reads the certificate. It creates one if there is none, and replaces one
// that ends soon. If another replica does so first, its certificate is used. The CA
// of the former certificate stays in the Secret, because replicas serve it until
// they read the Secret again.
func (c *certificate) ensure(ctx context.Context, now time.Time) error {
	secret := &corev1.Secret{}
	err := c.reader.Get(ctx, c.key, secret)
	switch {
	case apierrors.IsNotFound(err):
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}, Type: corev1.SecretTypeTLS}
		if secret.Data, err = c.issue(nil); err == nil {
			err = c.client.Create(ctx, secret)
		}
	case err == nil && !valid(secret.Data, now):
		if secret.Data, err = c.issue(secret.Data[caKey]); err == nil {
			err = c.client.Update(ctx, secret)
		}
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", c.key.Name, err)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("reading Secret %s: it has no certificate with its key", c.key.Name)
	}
	c.current.Store(&pair)
	return nil
}

// issue makes a certificate with a CA of its own, whose key is not kept. The first
// of the former CAs is kept, which is that of the former certificate.
func (c *certificate) issue(former []byte) (map[string][]byte, error) {
	service := c.key.Name + "." + c.key.Namespace
	var addresses []net.IP
	if ip := net.ParseIP(c.host); ip != nil {
		addresses = append(addresses, ip)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(service+".svc", addresses, []string{service, service + ".svc.cluster.local"})
	if err != nil {
		return nil, fmt.Errorf("making certificate: %w", err)
	}
	leaf, ca := pem.Decode(chain)
	if leaf == nil || len(bytes.TrimSpace(ca)) == 0 {
		return nil, errors.New("making certificate: it has no CA")
	}
	if last, _ := pem.Decode(former); last != nil && last.Type == cert.CertificateBlockType {
		ca = append(bytes.Clone(ca), pem.EncodeToMemory(last)...)
	}
	return map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key, caKey: ca}, nil
}

// valid reports whether a certificate can be used for some time.
func valid(data map[string][]byte, now time.Time) bool {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data[caKey]) {
		return false
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(renewBefore)})
	return err == nil
}
