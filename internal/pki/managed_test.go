package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	testKey   = client.ObjectKey{Namespace: "ns", Name: "c"}
	testOwner = metav1.OwnerReference{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "NovaControlPlane", Name: "c", UID: "u-1"}
)

func newFake(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

func testSecret(name string, pair KeyPair) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data:       map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key},
	}
}

func mustGenerate(t *testing.T, mat material, now time.Time) KeyPair {
	t.Helper()
	pair, err := generate(mat, now, authorityLifetime)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func dataOf(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	list := &corev1.SecretList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, s := range list.Items {
		all[s.Name] = string(s.Data["tls.crt"]) + string(s.Data["tls.key"])
	}
	return all
}

func TestEnsureSetsTheValidity(t *testing.T) {
	c := newFake()
	if err := NewManaged(c).Ensure(t.Context(), testKey, testOwner, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	ca := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: testKey.Namespace, Name: "c-ca"}, ca); err != nil {
		t.Fatal(err)
	}
	certificate, err := certs.DecodeCertPEM(ca.Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(certificate.NotAfter); left < 47*time.Hour || left > 48*time.Hour {
		t.Errorf("valid for %s, want 48 h", left)
	}
}

func TestEnsureMakesTheContractsSecrets(t *testing.T) {
	c := newFake()
	m := NewManaged(c)
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	list := &corev1.SecretList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Name)
		if s.Type != clusterv1.ClusterSecretType || s.Labels[clusterv1.ClusterNameLabel] != "c" {
			t.Errorf("%s: type %q, labels %v", s.Name, s.Type, s.Labels)
		}
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0] != testOwner {
			t.Errorf("%s: owners %v", s.Name, s.OwnerReferences)
		}
	}
	slices.Sort(names)
	if want := []string{"c-ca", "c-etcd", "c-proxy", "c-sa"}; !slices.Equal(names, want) {
		t.Fatalf("Secrets %v, want %v", names, want)
	}
	before := dataOf(t, c)
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, dataOf(t, c)) {
		t.Error("a second Ensure changed a Secret")
	}
}

func TestGeneratedAuthority(t *testing.T) {
	now := time.Now()
	pair := mustGenerate(t, materials[0], now)
	certificate, err := certs.DecodeCertPEM(pair.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := certificate.PublicKey.(*ecdsa.PublicKey); !ok || !certificate.IsCA || certificate.Subject.CommonName != "kubernetes" {
		t.Errorf("key %T, CA %v, subject %s", certificate.PublicKey, certificate.IsCA, certificate.Subject)
	}
	if got := now.Sub(certificate.NotBefore); got < clockSkew || got > clockSkew+2*time.Second {
		t.Errorf("valid since %s ago, want %s", got, clockSkew)
	}
	if got := certificate.NotAfter.Sub(now); got < authorityLifetime-2*time.Second || got > authorityLifetime+2*time.Second {
		t.Errorf("valid for %s, want %s", got, authorityLifetime)
	}
	sa := mustGenerate(t, materials[3], now)
	public, err := decodePublicKey(sa.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := public.(*rsa.PublicKey); !ok {
		t.Errorf("service account key is a %T, want RSA", public)
	}
}

func TestEnsureUsesWhatIsThere(t *testing.T) {
	own := mustGenerate(t, materials[0], time.Now())
	c := newFake(testSecret("c-ca", own))
	m := NewManaged(c)
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c-ca"}, s); err != nil {
		t.Fatal(err)
	}
	if len(s.OwnerReferences) != 0 {
		t.Error("the user's Secret was given an owner")
	}
	ca, err := m.ClusterCA(t.Context(), testKey)
	if err != nil || !bytes.Equal(ca, own.Certificate) {
		t.Errorf("ClusterCA: %v, the user's own: %v", err, bytes.Equal(ca, own.Certificate))
	}
}

func TestEnsureGoesOnAfterACrash(t *testing.T) {
	c := newFake()
	crash := errors.New("crash")
	left := 2
	dying := interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if left == 0 {
				return crash
			}
			left--
			return c.Create(ctx, obj, opts...)
		},
	})
	if err := NewManaged(dying).Ensure(t.Context(), testKey, testOwner, 0); !errors.Is(err, crash) {
		t.Fatalf("err = %v, want the crash", err)
	}
	half := dataOf(t, c)
	if err := NewManaged(c).Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	whole := dataOf(t, c)
	if len(half) != 2 || len(whole) != 4 {
		t.Fatalf("%d Secrets, then %d, want 2 and 4", len(half), len(whole))
	}
	for name, content := range half {
		if whole[name] != content {
			t.Errorf("%s was written over", name)
		}
	}
}

func TestEnsureTwiceAtOnce(t *testing.T) {
	c := newFake()
	var looked, racing sync.WaitGroup
	looked.Add(2)
	var once [2]sync.Once
	for i := range 2 {
		// Each caller writes its first Secret only after both have found none.
		racer := interceptor.NewClient(c, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				once[i].Do(looked.Done)
				looked.Wait()
				return c.Create(ctx, obj, opts...)
			},
		})
		racing.Go(func() {
			if err := NewManaged(racer).Ensure(t.Context(), testKey, testOwner, 0); err != nil {
				t.Error(err)
			}
		})
	}
	racing.Wait()
	if got := len(dataOf(t, c)); got != 4 {
		t.Errorf("%d Secrets, want 4", got)
	}
}

func TestInvalidCertificates(t *testing.T) {
	now := time.Now()
	good, other := mustGenerate(t, materials[0], now), mustGenerate(t, materials[0], now)
	expired := mustGenerate(t, materials[0], now.Add(-2*authorityLifetime))
	early := mustGenerate(t, materials[0], now.Add(time.Hour))
	sa := mustGenerate(t, materials[3], now)
	leaf := func() KeyPair {
		ca, problem := parse(materials[0], good, now)
		if problem != "" {
			t.Fatal(problem)
		}
		pair, err := ca.sign(ClientRequest{CommonName: "x", TTL: time.Hour}, now)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}()
	for name, tc := range map[string]struct {
		secret  string
		pair    KeyPair
		problem string
	}{
		"NoCertificate": {"c-ca", KeyPair{Key: good.Key}, "tls.crt is missing"},
		"NoKey":         {"c-ca", KeyPair{Certificate: good.Certificate}, "tls.key is missing"},
		"NotPEM":        {"c-etcd", KeyPair{Certificate: []byte("x"), Key: good.Key}, "no certificate"},
		"KeyNotPEM":     {"c-proxy", KeyPair{Certificate: good.Certificate, Key: []byte("x")}, "no RSA or ECDSA private key"},
		"WrongKey":      {"c-ca", KeyPair{Certificate: good.Certificate, Key: other.Key}, "does not belong"},
		"NotACA":        {"c-ca", leaf, "not the certificate of a certificate authority"},
		"Expired":       {"c-ca", expired, "expired"},
		"Early":         {"c-ca", early, "not valid yet"},
		"MayNotSign":    {"c-proxy", mayNotSign(t, now), "keyCertSign"},
		"NoEtcdClient":  {"c-etcd", KeyPair{Certificate: good.Certificate}, "external etcd also requires Secret c-apiserver-etcd-client"},
		"WrongPublic":   {"c-sa", KeyPair{Certificate: sa.Certificate, Key: mustGenerate(t, materials[3], now).Key}, "does not belong"},
		"NotPublic":     {"c-sa", KeyPair{Certificate: []byte("x"), Key: sa.Key}, "no public key"},
	} {
		t.Run(name, func(t *testing.T) {
			err := NewManaged(newFake(testSecret(tc.secret, tc.pair))).Ensure(t.Context(), testKey, testOwner, 0)
			var invalid *InvalidCertificateError
			if !errors.As(err, &invalid) {
				t.Fatalf("err = %v, want an InvalidCertificateError", err)
			}
			if invalid.Secret.Name != tc.secret || !strings.Contains(invalid.Problem, tc.problem) {
				t.Errorf("%s: %s, want %s: %s", invalid.Secret.Name, invalid.Problem, tc.secret, tc.problem)
			}
		})
	}
}

// mayNotSign is a CA without the key usage for signing.
func mayNotSign(t *testing.T, now time.Time) KeyPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := encode(der, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestCheck(t *testing.T) {
	c := newFake()
	m := NewManaged(c)
	if err := m.Check(t.Context(), testKey, testOwner); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing is there: %v", err)
	}
	if got := dataOf(t, c); len(got) > 0 {
		t.Errorf("a check made %v", got)
	}
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(t.Context(), testKey, testOwner); err != nil {
		t.Errorf("all is there: %v", err)
	}
}

func TestClientCertificates(t *testing.T) {
	c := newFake()
	m := NewManaged(c)
	request := ClientRequest{CommonName: "system:bootstrap:n1", Organizations: []string{"g"}, TTL: time.Hour}
	if _, err := m.Client(t.Context(), testKey, request); !errors.Is(err, ErrNotFound) {
		t.Fatalf("before Ensure: err = %v, want ErrNotFound", err)
	}
	if _, err := m.ClusterCA(t.Context(), testKey); !errors.Is(err, ErrNotFound) {
		t.Fatalf("before Ensure: err = %v, want ErrNotFound", err)
	}
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	ca, err := m.ClusterCA(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := m.Client(t.Context(), testKey, request)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, pair, ca, request)
	etcdPair, etcdCA, err := m.EtcdClient(t.Context(), testKey, request)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, etcdPair, etcdCA, request)
	if bytes.Equal(ca, etcdCA) {
		t.Error("etcd and the API server share an authority")
	}
	if _, err := m.Client(t.Context(), testKey, ClientRequest{CommonName: "x"}); err == nil {
		t.Error("a certificate without a lifetime was issued")
	}
}

func verify(t *testing.T, pair KeyPair, ca []byte, request ClientRequest) {
	t.Helper()
	certificate, err := certs.DecodeCertPEM(pair.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		t.Error(err)
	}
	if certificate.Subject.CommonName != request.CommonName || !slices.Equal(certificate.Subject.Organization, request.Organizations) {
		t.Errorf("subject %s", certificate.Subject)
	}
	if left := time.Until(certificate.NotAfter); left > request.TTL || left < request.TTL-time.Minute {
		t.Errorf("good for %s, want %s", left, request.TTL)
	}
}

func TestClientCertificateEndsWithItsAuthority(t *testing.T) {
	now := time.Now()
	pair := mustGenerate(t, materials[0], now.Add(time.Hour-authorityLifetime))
	ca, problem := parse(materials[0], pair, now)
	if problem != "" {
		t.Fatal(problem)
	}
	issued, err := ca.sign(ClientRequest{CommonName: "x", TTL: 24 * time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := certs.DecodeCertPEM(issued.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if certificate.NotAfter.After(ca.certificate.NotAfter) {
		t.Error("the certificate outlives its authority")
	}
}

func TestRSAAuthorityOfTheUser(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: must(newSerial()), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	pkcs8 := must(x509.MarshalPKCS8PrivateKey(key))
	own := KeyPair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
	m := NewManaged(newFake(testSecret("c-ca", own)))
	request := ClientRequest{CommonName: "x", TTL: time.Minute}
	pair, err := m.Client(t.Context(), testKey, request)
	if err != nil {
		t.Fatal(err)
	}
	certificate := must(certs.DecodeCertPEM(pair.Certificate))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(own.Certificate)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestControlPlaneFiles(t *testing.T) {
	m := NewManaged(newFake())
	if _, err := m.ControlPlaneFiles(t.Context(), testKey); !errors.Is(err, ErrNotFound) {
		t.Fatalf("before Ensure: err = %v, want ErrNotFound", err)
	}
	if err := m.Ensure(t.Context(), testKey, testOwner, 0); err != nil {
		t.Fatal(err)
	}
	files, err := m.ControlPlaneFiles(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range files {
		got[f.Path] = f.Permissions
		if len(f.Content) == 0 {
			t.Errorf("%s is empty", f.Path)
		}
	}
	want := map[string]string{
		"/etc/kubernetes/pki/ca.crt": "0644", "/etc/kubernetes/pki/ca.key": "0600",
		"/etc/kubernetes/pki/etcd/ca.crt": "0644", "/etc/kubernetes/pki/etcd/ca.key": "0600",
		"/etc/kubernetes/pki/front-proxy-ca.crt": "0644", "/etc/kubernetes/pki/front-proxy-ca.key": "0600",
		"/etc/kubernetes/pki/sa.pub": "0644", "/etc/kubernetes/pki/sa.key": "0600",
	}
	if !maps.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}
