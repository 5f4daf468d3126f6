package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// selfSigned returns a certificate with the given expiry.
func selfSigned(t *testing.T, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-365 * 24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// edited adds a field to a kubeconfig that would make a manager send its own
// token.
func edited(t *testing.T, of *corev1.Secret) *corev1.Secret {
	t.Helper()
	config, err := clientcmd.Load(of.Data[secret.KubeconfigDataName])
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.TokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{Data: map[string][]byte{secret.KubeconfigDataName: data}}
}

func TestKubeconfigDue(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	kubeconfig := func(left time.Duration, change func(*pki.KeyPair)) *corev1.Secret {
		pair := pki.KeyPair{Certificate: selfSigned(t, now.Add(left))}
		if change != nil {
			change(&pair)
		}
		data, err := clientcmd.Write(*newKubeconfig("c", "https://10.0.0.1:6443", []byte("ca"), pair))
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.Secret{Data: map[string][]byte{secret.KubeconfigDataName: data}}
	}
	for name, tc := range map[string]struct {
		reason  string
		current *corev1.Secret
		server  string
		ca      string
		want    string
		renewIn time.Duration
	}{
		"Fresh": {
			reason: "a fresh one stays until 60% of its life is left", current: kubeconfig(timelimits.KubeconfigTTL, nil),
			renewIn: timelimits.KubeconfigTTL * 4 / 10,
		},
		"Missing": {reason: "a missing one is created", want: "was created"},
		"Old":     {reason: "an old one is renewed", current: kubeconfig(timelimits.KubeconfigTTL*6/10, nil), want: "renewed"},
		"Expired": {reason: "an expired one too", current: kubeconfig(-time.Minute, nil), want: "renewed"},
		"Endpoint": {
			reason: "another endpoint needs another one", current: kubeconfig(timelimits.KubeconfigTTL, nil),
			server: "https://10.0.0.2:6443", want: "endpoint",
		},
		"CA": {reason: "another CA needs another one", current: kubeconfig(timelimits.KubeconfigTTL, nil), ca: "other", want: "CA"},
		"Garbage": {
			reason:  "an unreadable kubeconfig is replaced",
			current: &corev1.Secret{Data: map[string][]byte{secret.KubeconfigDataName: []byte("{")}}, want: "is not a kubeconfig",
		},
		"Empty": {reason: "an empty one is replaced", current: &corev1.Secret{}, want: "names no context"},
		"Edited": {
			reason:  "one with a field that is refused is replaced",
			current: edited(t, kubeconfig(timelimits.KubeconfigTTL, nil)), want: "users[].user.tokenFile",
		},
		"NoCertificate": {
			reason:  "one without a certificate is replaced",
			current: kubeconfig(timelimits.KubeconfigTTL, func(p *pki.KeyPair) { p.Certificate = []byte("x") }), want: "no certificate",
		},
		"BadCertificate": {
			reason: "one with a broken certificate is replaced",
			current: kubeconfig(timelimits.KubeconfigTTL, func(p *pki.KeyPair) {
				p.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
			}),
			want: "certificate could not be read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, ca := "https://10.0.0.1:6443", "ca"
			if tc.server != "" {
				server = tc.server
			}
			if tc.ca != "" {
				ca = tc.ca
			}
			got, renewIn := kubeconfigDue(tc.current, server, []byte(ca), now)
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) || renewIn != tc.renewIn {
				t.Errorf("%s: want %q %s, got %q %s", tc.reason, tc.want, tc.renewIn, got, renewIn)
			}
		})
	}
}

// The lifetime of certificates is limited by their CA. Without an exception a
// renewal would be due at once, repeatedly.
func TestKubeconfigOfOldCA(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ca := selfSigned(t, now.Add(24*time.Hour))
	for name, tc := range map[string]struct {
		left time.Duration
		want string
	}{
		"AsLongAsTheCA": {24 * time.Hour, ""},
		"Shorter":       {time.Hour, "renewed"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := clientcmd.Write(*newKubeconfig("c", "https://10.0.0.1:6443", ca, pki.KeyPair{Certificate: selfSigned(t, now.Add(tc.left))}))
			if err != nil {
				t.Fatal(err)
			}
			current := &corev1.Secret{Data: map[string][]byte{secret.KubeconfigDataName: data}}
			if got, renewIn := kubeconfigDue(current, "https://10.0.0.1:6443", ca, now); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") || renewIn > 0 {
				t.Errorf("got %q %s, want %q", got, renewIn, tc.want)
			}
		})
	}
}
