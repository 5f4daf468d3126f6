package vault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	vaultclient "github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

var _ = Describe("CAs", func() {
	for _, program := range programs() {
		It("are rotated, whenever the manager dies: "+program, func(ctx SpecContext) {
			r := newRotating(ctx, program)
			r.cluster(ctx, blue)
			r.repeat("making CAs", func() error { return r.controlPlane.Ensure(ctx, blue, owner, 0) }, func() {})
			Expect(r.list(ctx, certificates.Kubernetes, "issuers")).To(HaveLen(1))
			old := r.state(ctx)
			Expect(old.Changed).To(BeZero())
			Expect(r.bootstrap.Rotate(ctx, blue, pki.AddAuthorities, 0)).To(haveProblem(vaultclient.Forbidden))
			for range 2 { // the names of CAs do not collide
				old = r.state(ctx)
				r.rotate(ctx, pki.AddAuthorities)
				both := r.state(ctx)
				r.rotate(ctx, pki.SwapAuthorities)
				swapped := r.state(ctx)
				for a, g := range swapped.CAs {
					Expect(serial(g.Signing)).To(Equal(serial(both.CAs[a].Other)))
					Expect(serial(g.Other)).To(Equal(serial(both.CAs[a].Signing)))
					Expect(pki.Made(g.Signing)).To(BeTemporally("~", time.Now(), time.Minute))
				}
				Expect(serial(both.CAs[certificates.Kubernetes].Signing)).To(Equal(serial(old.CAs[certificates.Kubernetes].Signing)))
				leaf := r.sign(ctx)
				Expect(leaf.CheckSignatureFrom(swapped.CAs[certificates.Kubernetes].Signing)).To(Succeed())
				bundle, err := certutil.ParseCertsPEM(swapped.Bundles[certificates.Kubernetes])
				Expect(err).NotTo(HaveOccurred())
				Expect(bundle).To(HaveLen(3))
				roots, chain := x509.NewCertPool(), x509.NewCertPool()
				roots.AddCert(old.CAs[certificates.Kubernetes].Signing)
				chain.AddCert(bundle[2])
				_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
				Expect(err).NotTo(HaveOccurred(), "a program that knows only the former CA")
				r.rotate(ctx, pki.DropAuthorities)
				for a, g := range r.state(ctx).CAs {
					Expect(serial(g.Signing)).To(Equal(serial(swapped.CAs[a].Signing)))
					Expect(g.Other).To(BeNil())
					Expect(r.list(ctx, a, "issuers")).To(HaveLen(1))
				}
				Expect(r.keys(ctx)).To(BeEmpty())
			}
			Expect(r.list(ctx, certificates.Etcd, "keys")).To(HaveLen(3), "only an administrator can delete keys of CAs")
			login, err := r.bootstrap.NodeLogin(ctx, blue, time.Hour)
			Expect(err).NotTo(HaveOccurred())
			Expect(login).NotTo(BeNil())

			By("aborting another rotation")
			old = r.state(ctx)
			for range 2 {
				for _, step := range []pki.RotationStep{pki.AddAuthorities, pki.SwapAuthorities, pki.UnswapAuthorities, pki.DropAuthorities} {
					r.rotate(ctx, step)
				}
				r.expect(ctx, old)
				Expect(r.sign(ctx).CheckSignatureFrom(old.CAs[certificates.Kubernetes].Signing)).To(Succeed())
				Expect(r.list(ctx, certificates.Kubernetes, "issuers")).To(HaveLen(1))
			}
			Expect(r.keys(ctx)).To(BeEmpty())
		}, SpecTimeout(buildTimeout+changeTimeout))

		It("move to it from Secrets, whenever the manager dies: "+program, func(ctx SpecContext) {
			r := newRotating(ctx, program)
			r.cluster(ctx, blue)
			r.use(ctx, "")
			Expect(r.controlPlane.Ensure(ctx, blue, owner, 0)).To(Succeed())
			old := r.state(ctx)
			r.use(ctx, "vault")
			Expect(r.controlPlane.Check(ctx, blue, owner)).To(Succeed())
			Expect(r.bootstrap.Signs(ctx, blue)).To(BeFalse(), "nothing changes before the first step")
			former := r.keys(ctx)
			Expect(former).To(ConsistOf("blue-ca/tls.key", "blue-etcd/tls.key", "blue-proxy/tls.key"))

			r.rotate(ctx, pki.AddAuthorities)
			Expect(r.bootstrap.Signs(ctx, blue)).To(BeTrue())
			Expect(r.keys(ctx)).To(Equal(former))
			Expect(r.sign(ctx).CheckSignatureFrom(old.CAs[certificates.Kubernetes].Signing)).To(Succeed())
			r.rotate(ctx, pki.SwapAuthorities)
			Expect(r.keys(ctx)).To(ConsistOf("blue-ca/other.key", "blue-etcd/other.key", "blue-proxy/other.key"))
			made := r.state(ctx).CAs[certificates.Kubernetes]
			Expect(serial(made.Other)).To(Equal(serial(old.CAs[certificates.Kubernetes].Signing)))
			Expect(r.sign(ctx).CheckSignatureFrom(made.Signing)).To(Succeed())

			By("aborting it")
			r.rotate(ctx, pki.UnswapAuthorities)
			Expect(r.keys(ctx)).To(Equal(former))
			Expect(r.sign(ctx).CheckSignatureFrom(old.CAs[certificates.Kubernetes].Signing)).To(Succeed())
			r.rotate(ctx, pki.DropAuthorities)
			r.expect(ctx, old)
			Expect(r.list(ctx, certificates.Kubernetes, "issuers")).To(BeEmpty())

			By("moving to the end")
			for _, step := range []pki.RotationStep{pki.AddAuthorities, pki.SwapAuthorities, pki.DropAuthorities} {
				r.rotate(ctx, step)
			}
			Expect(r.keys(ctx)).To(BeEmpty())
			Expect(r.list(ctx, certificates.Kubernetes, "issuers")).To(HaveLen(1))
			Expect(r.sign(ctx).CheckSignatureFrom(r.state(ctx).CAs[certificates.Kubernetes].Signing)).To(Succeed())
			_, _, err := r.controlPlane.EtcdClient(ctx, blue, pki.ClientRequest{CommonName: "nova-control-plane", TTL: time.Minute})
			Expect(err).NotTo(HaveOccurred())
			login, err := r.bootstrap.NodeLogin(ctx, blue, time.Hour)
			Expect(err).NotTo(HaveOccurred())
			Expect(login).NotTo(BeNil())

			By("refusing a CA of a user, whose key is not in the vault")
			s := &corev1.Secret{}
			Expect(r.kube.Get(ctx, client.ObjectKey{Namespace: blue.Namespace, Name: "blue-ca"}, s)).To(Succeed())
			s.Type, s.Data["tls.key"] = corev1.SecretTypeOpaque, []byte("x")
			Expect(r.kube.Update(ctx, s)).To(Succeed())
			Expect(r.controlPlane.Check(ctx, blue, owner)).To(MatchError(ContainSubstring("tls.key must not be set")))
		}, SpecTimeout(buildTimeout+changeTimeout))
	}
})

// rotating is a vault, of which the answer to a request can be lost.
type rotating struct {
	*prepared

	// left is the number of changes until an answer is lost; negative if none is.
	left int
}

var errInterrupted = errors.New("interrupted")

func newRotating(ctx context.Context, program string) *rotating {
	GinkgoHelper()
	r := &rotating{prepared: prepare(ctx, program), left: -1}
	identity := &controlplanev1.NovaStarVaultIdentity{}
	Expect(r.kube.Get(ctx, client.ObjectKey{Name: "vault"}, identity)).To(Succeed())
	server, trusted := &url.URL{Scheme: "https", Host: identity.Spec.Server}, x509.NewCertPool()
	Expect(trusted.AppendCertsFromPEM(r.CA)).To(BeTrue())
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted}},
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(server) },
		ModifyResponse: func(answer *http.Response) error {
			if answer.Request.Method == http.MethodGet || strings.HasSuffix(answer.Request.URL.Path, "/login") {
				return nil
			}
			return r.interrupt()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	DeferCleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	Expect(err).NotTo(HaveOccurred())
	identity.Spec.Server = address.Host
	identity.Spec.CABundle = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}))
	Expect(r.kube.Update(ctx, identity)).To(Succeed())
	r.controlPlane.Kube = interceptor.NewClient(r.kube, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return errors.Join(c.Update(ctx, o, options...), r.interrupt())
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return errors.Join(c.Create(ctx, o, options...), r.interrupt())
		},
	})
	return r
}

// interrupt reports whether the manager dies before it has the answer.
func (r *rotating) interrupt() error {
	if r.left == 0 {
		return errInterrupted
	}
	r.left--
	return nil
}

// rotate carries out a step, with interruptions after each change.
func (r *rotating) rotate(ctx context.Context, step pki.RotationStep) {
	GinkgoHelper()
	if step == pki.AddAuthorities {
		// The times in certificates are whole seconds, and the CA of Kubernetes is the first one.
		former := r.state(ctx).CAs[certificates.Kubernetes].Signing
		const apart = 3 * time.Second
		Eventually(func() bool { return time.Now().After(pki.Made(former).Add(apart)) }).WithTimeout(2 * apart).Should(BeTrue())
	}
	r.repeat(string(step), func() error { return r.controlPlane.Rotate(ctx, blue, step, 0) }, func() {
		GinkgoHelper()
		Expect(r.controlPlane.Check(ctx, blue, owner)).To(Succeed(), "%s is interrupted", step)
	})
	id := r.state(ctx).ID
	Expect(r.controlPlane.Rotate(ctx, blue, step, 0)).To(Succeed())
	Expect(r.state(ctx).ID).To(Equal(id), "%s is repeated", step)
}

// repeat does something until it is not interrupted any more: the answer to the first
// change is lost, then that to the second one of the next attempt.
func (r *rotating) repeat(name string, do func() error, between func()) {
	GinkgoHelper()
	for changes := 0; ; changes++ {
		r.left = changes
		err := do()
		r.left = -1
		between()
		if err == nil {
			return
		}
		Expect(err).To(Or(MatchError(errInterrupted), haveProblem(vaultclient.Unreachable)), "%s after %d changes", name, changes)
		Expect(changes).To(BeNumerically("<", 100))
	}
}

func (r *rotating) state(ctx context.Context) *pki.Rotation {
	GinkgoHelper()
	state, err := r.controlPlane.Rotation(ctx, blue)
	Expect(err).NotTo(HaveOccurred())
	return state
}

// use sets the identity of the cluster.
func (r *rotating) use(ctx context.Context, identity string) {
	GinkgoHelper()
	controlPlane := &controlplanev1.NovaControlPlane{}
	Expect(r.kube.Get(ctx, blue, controlPlane)).To(Succeed())
	controlPlane.Spec.Platform.PKI.StarVault.IdentityName = identity
	Expect(r.kube.Update(ctx, controlPlane)).To(Succeed())
}

// expect expects that the CA signs that signed before, and no other one is trusted.
func (r *rotating) expect(ctx context.Context, before *pki.Rotation) {
	GinkgoHelper()
	g := r.state(ctx).CAs[certificates.Kubernetes]
	Expect(serial(g.Signing)).To(Equal(serial(before.CAs[certificates.Kubernetes].Signing)))
	Expect(g.Other).To(BeNil())
}

// serial is the serial number of a CA.
func serial(ca *x509.Certificate) string { return ca.SerialNumber.String() }

// sign has the certificate of a node signed.
func (r *rotating) sign(ctx context.Context) *x509.Certificate {
	GinkgoHelper()
	signed, err := r.bootstrap.Sign(ctx, blue, pki.SignRequest{
		Role: "scheduler", Authority: certificates.Kubernetes, Request: []byte(certificateRequest()), CommonName: "system:kube-scheduler", Client: true, TTL: time.Hour,
	})
	Expect(err).NotTo(HaveOccurred())
	all, err := certutil.ParseCertsPEM(signed)
	Expect(err).NotTo(HaveOccurred())
	return all[0]
}

// keys returns the keys of CAs in Secrets.
func (r *rotating) keys(ctx context.Context) (found []string) {
	GinkgoHelper()
	for _, name := range []string{"blue-ca", "blue-etcd", "blue-proxy"} {
		s := &corev1.Secret{}
		Expect(r.kube.Get(ctx, client.ObjectKey{Namespace: blue.Namespace, Name: name}, s)).To(Succeed())
		for key, value := range s.Data {
			if strings.Contains(string(value), "PRIVATE KEY") {
				found = append(found, name+"/"+key)
			}
		}
	}
	slices.Sort(found)
	return found
}

// list returns the issuers or keys of an engine.
func (r *rotating) list(ctx context.Context, a certificates.Authority, of string) []any {
	GinkgoHelper()
	answer, err := r.root.Logical().ListWithContext(ctx, "nova/tenants.blue/"+string(a)+"/"+of)
	Expect(err).NotTo(HaveOccurred())
	if answer == nil {
		return nil
	}
	return answer.Data["keys"].([]any)
}
