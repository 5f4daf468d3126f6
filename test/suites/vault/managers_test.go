package vault

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	vaultclient "github.com/nova-platform/cluster-api-provider-nova/internal/vault"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/starvault"
)

// expectSignedIn requires that both managers have the rights of their policies, and
// those of no other.
func (p *prepared) expectSignedIn(ctx context.Context) {
	GinkgoHelper()
	Expect(p.controlPlane.Ensure(ctx, blue, owner, 0)).To(Succeed())
	_, err := p.controlPlane.Client(ctx, blue, pki.ClientRequest{CommonName: "kubernetes-admin", Organizations: []string{"nova:cluster-admins"}, TTL: time.Hour})
	Expect(err).NotTo(HaveOccurred())
	_, err = p.bootstrap.NodeLogin(ctx, blue, time.Hour)
	Expect(err).NotTo(HaveOccurred())
	_, err = p.controlPlane.NodeLogin(ctx, blue, time.Hour)
	Expect(err).To(haveProblem(vaultclient.Forbidden))
}

// expectRejected requires that a manager cannot sign in.
func expectRejected(ctx context.Context, manager *pki.Authorities, secrets ...string) {
	GinkgoHelper()
	_, err := manager.Client(ctx, blue, pki.ClientRequest{CommonName: "nova-bootstrap", Organizations: []string{"nova:managers"}, TTL: time.Hour})
	Expect(err).To(haveProblem(vaultclient.CredentialsRejected))
	for _, secret := range secrets {
		Expect(err.Error()).NotTo(ContainSubstring(secret))
	}
}

// serviceAccount is a service account of a management cluster.
type serviceAccount struct {
	api             *env.Env
	namespace, name string
}

// token writes a token for an audience, as the kubelet does.
func (a serviceAccount) token(ctx context.Context, audience string) string {
	GinkgoHelper()
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	Expect(a.api.Client.SubResource("token").Create(ctx, of, request)).To(Succeed())
	path := filepath.Join(GinkgoT().TempDir(), "token")
	Expect(os.WriteFile(path, []byte(request.Status.Token+"\n"), 0o600)).To(Succeed())
	return path
}

var _ = Describe("Managers", func() {
	for _, program := range programs() {
		It("sign in with tokens of their service accounts: "+program, func(ctx SpecContext) {
			api, err := env.Start(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(api.Stop)
			p := prepareFor(ctx, program, controlplanev1.VaultAuth{Method: controlplanev1.VaultKubernetes})
			p.cluster(ctx, blue)
			kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
			Expect(os.WriteFile(kubeconfig, api.Kubeconfig(), 0o600)).To(Succeed())
			p.run(ctx, blocksOf("starvault.md")[0], "KUBECONFIG="+kubeconfig)
			accounts := map[string]serviceAccount{}
			as := func(manager, token string) *pki.Authorities {
				return &pki.Authorities{Kube: p.kube, Namespace: manager + "-system", Manager: manager, TokenFile: token}
			}
			for _, name := range starvault.Managers {
				a := serviceAccount{api: api, namespace: name + "-system", name: name + "-manager"}
				Expect(api.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}})).To(Succeed())
				for _, account := range []string{a.name, "other"} {
					Expect(api.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: account}})).To(Succeed())
				}
				accounts[name] = a
			}
			p.controlPlane = as("nova-control-plane", accounts["nova-control-plane"].token(ctx, "starvault"))
			p.bootstrap = as("nova-bootstrap", accounts["nova-bootstrap"].token(ctx, "starvault"))
			p.expectSignedIn(ctx)

			a := accounts["nova-bootstrap"]
			expectRejected(ctx, as("nova-bootstrap", a.token(ctx, "kubernetes")))
			expectRejected(ctx, as("nova-bootstrap", accounts["nova-control-plane"].token(ctx, "starvault")))
			expectRejected(ctx, as("nova-bootstrap", serviceAccount{api: api, namespace: a.namespace, name: "other"}.token(ctx, "starvault")))
			expectRejected(ctx, as("nova-bootstrap", filepath.Join(GinkgoT().TempDir(), "none")))
			By("rejecting a token of a deleted service account")
			token := a.token(ctx, "starvault")
			Expect(api.Client.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}})).To(Succeed())
			content, err := os.ReadFile(token)
			Expect(err).NotTo(HaveOccurred())
			expectRejected(ctx, as("nova-bootstrap", token), strings.TrimSpace(string(content)))
		}, SpecTimeout(buildTimeout+changeTimeout))

		It("sign in with client certificates: "+program, func(ctx SpecContext) {
			p := prepareFor(ctx, program, controlplanev1.VaultAuth{Method: controlplanev1.VaultCertificate, SecretRef: controlplanev1.VaultSecretReference{Name: "vault"}})
			p.cluster(ctx, blue)
			trusted, other := newClientCA(), newClientCA()
			path := filepath.Join(GinkgoT().TempDir(), "clients.crt")
			Expect(os.WriteFile(path, certs.EncodeCertPEM(trusted.certificate), 0o600)).To(Succeed())
			p.run(ctx, strings.ReplaceAll(blocksOf("starvault.md")[1], "@clients.crt", "@"+path))
			for _, name := range starvault.Managers {
				Expect(p.kube.Create(ctx, trusted.secret(name+"-system", name))).To(Succeed())
			}
			as := func(name string) *pki.Authorities {
				return &pki.Authorities{Kube: p.kube, Namespace: name + "-system", Manager: name}
			}
			p.controlPlane, p.bootstrap = as("nova-control-plane"), as("nova-bootstrap")
			p.expectSignedIn(ctx)

			// A new certificate is used as soon as it is in the Secret.
			for _, wrong := range []*corev1.Secret{other.secret("nova-bootstrap-system", "nova-bootstrap"), trusted.secret("nova-bootstrap-system", "nova-control-plane")} {
				s := &corev1.Secret{}
				Expect(p.kube.Get(ctx, client.ObjectKeyFromObject(wrong), s)).To(Succeed())
				s.Data = wrong.Data
				Expect(p.kube.Update(ctx, s)).To(Succeed())
				expectRejected(ctx, p.bootstrap)
			}
		}, SpecTimeout(buildTimeout+changeTimeout))
	}
})

// clientCA is a CA of client certificates.
type clientCA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newClientCA() *clientCA {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	ca := &clientCA{key: key}
	ca.certificate = ca.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, key)
	return ca
}

// sign signs a certificate; without a parent by itself.
func (ca *clientCA) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	GinkgoHelper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), ca.key)
	Expect(err).NotTo(HaveOccurred())
	signed, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return signed
}

// secret returns the Secret of a manager with a certificate of a name.
func (ca *clientCA) secret(namespace, name string) *corev1.Secret {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	certificate := ca.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.certificate, key)
	der, err := x509.MarshalECPrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vault"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey: certs.EncodeCertPEM(certificate), corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	}}
}
