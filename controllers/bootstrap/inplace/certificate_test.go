package inplace

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Replicas share one certificate, which the CA in the Secret verifies. It is
// renewed before it ends.
func TestCertificate(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	key := client.ObjectKey{Namespace: "nova", Name: SecretName}
	one, other := &certificate{client: c, reader: c, key: key, host: "127.0.0.1"}, &certificate{client: c, reader: c, key: key, host: "127.0.0.1"}
	if _, err := one.get(nil); err == nil {
		t.Error("a certificate before the first one")
	}
	now := time.Now()
	for _, of := range []*certificate{one, other} {
		if err := of.ensure(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	served := func(of *certificate) *tls.Certificate {
		t.Helper()
		found, err := of.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	first := served(one)
	if !bytes.Equal(first.Certificate[0], served(other).Certificate[0]) {
		t.Error("two replicas have two certificates")
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	for _, name := range []string{"nova-bootstrap-runtime-extension.nova.svc", "127.0.0.1"} {
		if _, err := first.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if secret.Type != corev1.SecretTypeTLS {
		t.Errorf("type %s", secret.Type)
	}
	if err := one.ensure(t.Context(), now.Add(310*24*time.Hour)); err != nil || bytes.Equal(first.Certificate[0], served(one).Certificate[0]) {
		t.Errorf("a certificate that ends soon was not renewed: %v", err)
	}
	checkFormerCA(t, c, key, served(other), one, now)
	secret = &corev1.Secret{}
	if err := c.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["tls.key"] = []byte("broken")
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := other.ensure(t.Context(), now); err != nil {
		t.Errorf("a broken certificate was not replaced: %v", err)
	}
}

// checkFormerCA makes sure that the certificate that another replica serves until
// it reads the Secret again is valid, and that CAs do not accumulate.
func checkFormerCA(t *testing.T, c client.Client, key client.ObjectKey, former *tls.Certificate, renewer *certificate, now time.Time) {
	t.Helper()
	for renewals := range 3 {
		secret := &corev1.Secret{}
		if err := c.Get(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(secret.Data["ca.crt"])
		if _, err := former.Leaf.Verify(x509.VerifyOptions{Roots: roots}); (err == nil) != (renewals == 0) {
			t.Errorf("the certificate before the last %d: %v", renewals+1, err)
		}
		if n := bytes.Count(secret.Data["ca.crt"], []byte("BEGIN CERTIFICATE")); n != 2 {
			t.Errorf("%d CAs after %d renewals", n, renewals+1)
		}
		if err := renewer.ensure(t.Context(), now.Add(310*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}
