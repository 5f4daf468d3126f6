package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// rotating returns the authority of a cluster whose CAs are an hour old, how they are
// now, and the certificates in a bundle.
func rotating(t *testing.T, c client.WithWatch) (m *Managed, now func() *Rotation, bundle func(certificates.Authority) []*x509.Certificate) {
	t.Helper()
	g := NewWithT(t)
	m = NewManaged(c)
	at := time.Now().Add(-time.Hour)
	m.now = func() time.Time { return at }
	g.Expect(m.Ensure(t.Context(), testKey, testOwner, 0)).To(Succeed())
	m.now = time.Now
	now = func() *Rotation {
		r, err := m.Rotation(t.Context(), testKey)
		g.Expect(err).NotTo(HaveOccurred())
		return r
	}
	bundle = func(a certificates.Authority) []*x509.Certificate {
		s := &corev1.Secret{}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: testKey.Namespace, Name: testKey.Name + "-" + string(purposes[a].purpose)}, s)).To(Succeed())
		all, err := certutil.ParseCertsPEM(s.Data["tls.crt"])
		g.Expect(err).NotTo(HaveOccurred())
		return all
	}
	return m, now, bundle
}

func TestRotation(t *testing.T) {
	g := NewWithT(t)
	m, now, bundle := rotating(t, newFake())
	before := now()
	g.Expect(before.Changed).To(BeZero())
	g.Expect(before.ID).To(BeEmpty(), "nothing changes for a cluster that was never rotated")
	g.Expect(m.Signs(t.Context(), testKey)).To(BeFalse())
	old := bundle(certificates.Kubernetes)[0]

	g.Expect(m.Rotate(t.Context(), testKey, AddAuthorities, authorityLifetime)).To(Succeed())
	both := now()
	g.Expect(both.ID).To(MatchRegexp("^[0-9a-f]{16}$"))
	g.Expect(both.Changed).To(BeTemporally("~", time.Now(), time.Minute))
	g.Expect(both.CAs).To(HaveLen(3))
	for a, generations := range both.CAs {
		g.Expect(generations.Signing).To(Equal(bundle(a)[0]))
		g.Expect(generations.Other.NotBefore.After(generations.Signing.NotBefore)).To(BeTrue())
	}
	g.Expect(m.Signs(t.Context(), testKey)).To(BeTrue())
	g.Expect(m.Rotate(t.Context(), testKey, AddAuthorities, authorityLifetime)).To(Succeed())
	g.Expect(now().ID).To(Equal(both.ID), "a step can be repeated")
	g.Expect(m.Check(t.Context(), testKey, testOwner)).To(Succeed())

	g.Expect(m.Rotate(t.Context(), testKey, SwapAuthorities, authorityLifetime)).To(Succeed())
	swapped := now()
	for a, generations := range swapped.CAs {
		g.Expect(generations.Signing).To(Equal(both.CAs[a].Other))
		g.Expect(generations.Other).To(Equal(both.CAs[a].Signing))
	}
	g.Expect(m.Rotate(t.Context(), testKey, SwapAuthorities, authorityLifetime)).To(Succeed())
	g.Expect(now().ID).To(Equal(swapped.ID), "a step can be repeated")
	g.Expect(m.Check(t.Context(), testKey, testOwner)).To(Succeed())

	t.Run("a program that knows only the former CA accepts a server with a certificate of the new one", func(t *testing.T) {
		g := NewWithT(t)
		all := bundle(certificates.Kubernetes)
		g.Expect(all).To(HaveLen(3))
		leaf := signedBy(t, m, SignRequest{Authority: certificates.Kubernetes, CommonName: "kube-apiserver", DNSNames: []string{"api.test"}, Server: true, TTL: time.Hour})
		roots, chain := x509.NewCertPool(), x509.NewCertPool()
		roots.AddCert(old)
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots})
		g.Expect(err).To(HaveOccurred())
		chain.AddCert(all[2])
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, DNSName: "api.test"})
		g.Expect(err).NotTo(HaveOccurred())
	})

	g.Expect(m.Rotate(t.Context(), testKey, DropAuthorities, authorityLifetime)).To(Succeed())
	after := now()
	for a, generations := range after.CAs {
		g.Expect(generations.Other).To(BeNil())
		g.Expect(bundle(a)).To(ConsistOf(both.CAs[a].Other))
	}
	g.Expect(m.Signs(t.Context(), testKey)).To(BeTrue(), "the nodes have no keys of CAs")
	g.Expect(swapped.ID).NotTo(Equal(both.ID))
	g.Expect(after.ID).NotTo(BeElementOf(both.ID, swapped.ID))
	pair, err := m.Client(t.Context(), testKey, ClientRequest{CommonName: "x", TTL: time.Hour})
	g.Expect(err).NotTo(HaveOccurred())
	issued, err := certutil.ParseCertsPEM(pair.Certificate)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(issued[0].CheckSignatureFrom(after.CAs[certificates.Kubernetes].Signing)).To(Succeed())
}

func TestRotationIsAborted(t *testing.T) {
	g := NewWithT(t)
	m, now, _ := rotating(t, newFake())
	before := now().CAs[certificates.Kubernetes].Signing
	for _, step := range []RotationStep{AddAuthorities, SwapAuthorities, UnswapAuthorities, UnswapAuthorities, DropAuthorities} {
		g.Expect(m.Rotate(t.Context(), testKey, step, authorityLifetime)).To(Succeed())
	}
	after := now().CAs[certificates.Kubernetes]
	g.Expect(after.Signing).To(Equal(before))
	g.Expect(after.Other).To(BeNil())
}

// A step that was interrupted between two Secrets is completed by the next attempt.
func TestRotationIsInterrupted(t *testing.T) {
	steps := []RotationStep{AddAuthorities, SwapAuthorities, DropAuthorities}
	for last, step := range steps {
		for stop := range 3 {
			g := NewWithT(t)
			left := -1
			c := interceptor.NewClient(newFake(), interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
				if left == 0 {
					return errors.New("interrupted")
				}
				left--
				return c.Update(ctx, o, options...)
			}})
			m, now, _ := rotating(t, c)
			for _, s := range steps[:last] {
				g.Expect(m.Rotate(t.Context(), testKey, s, authorityLifetime)).To(Succeed())
			}
			left = stop
			g.Expect(m.Rotate(t.Context(), testKey, step, authorityLifetime)).To(MatchError(ContainSubstring("interrupted")))
			left = -1
			g.Expect(m.Check(t.Context(), testKey, testOwner)).To(Succeed(), "each Secret is usable")
			g.Expect(m.Rotate(t.Context(), testKey, step, authorityLifetime)).To(Succeed())
			for a, generations := range now().CAs {
				if step == DropAuthorities {
					g.Expect(generations.Other).To(BeNil(), "%s after an interruption before Secret %d", a, stop)
					continue
				}
				g.Expect(generations.Other).NotTo(BeNil(), "%s after an interruption before Secret %d", a, stop)
				g.Expect(generations.Signing.NotBefore.After(generations.Other.NotBefore)).To(Equal(step == SwapAuthorities))
			}
		}
	}
}

func TestRotationOfUsersCAs(t *testing.T) {
	g := NewWithT(t)
	var secrets []client.Object
	for _, mat := range materials {
		secrets = append(secrets, testSecret("c-"+string(mat.purpose), mustGenerate(t, mat, time.Now())))
	}
	m := NewManaged(newFake(secrets...))
	var refused *RotationRefusedError
	g.Expect(errors.As(m.Rotate(t.Context(), testKey, AddAuthorities, authorityLifetime), &refused)).To(BeTrue())
	g.Expect(refused).To(MatchError(ContainSubstring("created by a user")))
}

func TestRotationKeepsTheKeyOfSnapshots(t *testing.T) {
	g := NewWithT(t)
	c := newFake()
	m, _, _ := rotating(t, c)
	s := &corev1.Secret{}
	read := func() {
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: testKey.Namespace, Name: testKey.Name + "-etcd"}, s)).To(Succeed())
	}
	read()
	want, err := DeriveSnapshotsKey(s.Data["tls.key"])
	g.Expect(err).NotTo(HaveOccurred())
	for range 2 {
		for _, step := range []RotationStep{AddAuthorities, SwapAuthorities, DropAuthorities} {
			g.Expect(m.Rotate(t.Context(), testKey, step, authorityLifetime)).To(Succeed())
			read()
			g.Expect(s.Data[SnapshotsKey]).To(Equal(want))
		}
	}
}

// signedBy has the certificate of a new key signed.
func signedBy(t *testing.T, s Signer, request SignRequest) *x509.Certificate {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	g.Expect(err).NotTo(HaveOccurred())
	request.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	signed, err := s.Sign(t.Context(), testKey, request)
	g.Expect(err).NotTo(HaveOccurred())
	all, err := certutil.ParseCertsPEM(signed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all[0].PublicKey).To(Equal(key.Public()))
	g.Expect(all[0].IsCA).To(BeFalse())
	return all[0]
}

func TestManagedSigns(t *testing.T) {
	g := NewWithT(t)
	m, _, bundle := rotating(t, newFake())
	signed := signedBy(t, m, SignRequest{
		Authority: certificates.Etcd, CommonName: "node", Organizations: []string{"nodes"}, DNSNames: []string{"node.test"}, Client: true, Server: true, TTL: 100 * 365 * 24 * time.Hour,
	})
	ca := bundle(certificates.Etcd)[0]
	g.Expect(signed.CheckSignatureFrom(ca)).To(Succeed())
	g.Expect(signed.NotAfter).To(Equal(ca.NotAfter), "no certificate outlives its CA")
	g.Expect(signed.ExtKeyUsage).To(ConsistOf(x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth))
	g.Expect(signed.Subject.Organization).To(Equal([]string{"nodes"}))
	_, err := m.Sign(t.Context(), testKey, SignRequest{Authority: certificates.Etcd, Request: []byte("x"), TTL: time.Hour})
	g.Expect(err).To(MatchError(ContainSubstring("not in PEM")))
}
