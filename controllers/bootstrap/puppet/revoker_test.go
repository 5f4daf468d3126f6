package puppet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const uid = "0d4f6a3e-6a5e-4a5b-9d1c-0c5a1c2b3d4e"

// server is a Puppet server that responds with a code and a text.
type server struct {
	*httptest.Server

	code     int
	text     string
	requests []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{code: http.StatusOK, text: "Successfully cleaned all certs."}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.requests = append(s.requests, r.Method+" "+r.URL.Path+" "+string(body))
		w.WriteHeader(s.code)
		_, _ = io.WriteString(w, s.text)
	}))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// secret has the credentials for the server: any certificate.
func (s *server) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	own := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "nova", Name: RevocationSecret}, Data: map[string][]byte{
		"server": []byte(strings.TrimPrefix(s.URL, "https://") + "\n"), "ca.crt": certificate, "tls.crt": certificate,
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}}
}

func TestDelete(t *testing.T) {
	const request = `PUT /puppet-ca/v1/clean {"certnames":["w-1.` + uid + `"]}`
	for name, tc := range map[string]struct {
		age      time.Duration
		change   func(*server, *corev1.Secret)
		alive    bool
		machine  bool
		foreign  bool
		requests int
		retried  bool
		event    string
	}{
		"Revoked": {machine: true, requests: 1, event: "Normal PuppetCertificateRevoked Certificate w-1." + uid + " was revoked"},
		"NoCertificate": {machine: true, requests: 1, change: func(s *server, _ *corev1.Secret) {
			s.text = "The following certs do not exist and cannot be revoked: [x]"
		}},
		"NoSecret":       {machine: true, change: func(_ *server, secret *corev1.Secret) { secret.Name = "another" }},
		"Foreign":        {machine: true, foreign: true},
		"MachineIsAlive": {machine: true, alive: true},
		"NoMachine":      {},
		"Refused":        {machine: true, requests: 1, retried: true, change: func(s *server, _ *corev1.Secret) { s.code = http.StatusForbidden }, event: "Warning PuppetRevocationFailed"},
		"Away":           {machine: true, retried: true, change: func(s *server, _ *corev1.Secret) { s.Close() }, event: "Warning PuppetRevocationFailed"},
		"AwayForLong":    {machine: true, age: 6 * time.Minute, change: func(s *server, _ *corev1.Secret) { s.Close() }, event: "Warning PuppetCertificateKept"},
		"NoRedirect":     {machine: true, requests: 1, retried: true, change: func(s *server, _ *corev1.Secret) { s.code = http.StatusTemporaryRedirect }, event: "Warning PuppetRevocationFailed"},
		"AnotherCA":      {machine: true, retried: true, change: func(_ *server, secret *corev1.Secret) { secret.Data["ca.crt"] = []byte("none") }, event: "ca.crt has no certificate"},
		"AnotherKey":     {machine: true, retried: true, change: func(_ *server, secret *corev1.Secret) { secret.Data["tls.key"] = []byte("secret-key") }, event: "are no certificate with its key"},
		"NoServer":       {machine: true, retried: true, change: func(_ *server, secret *corev1.Secret) { delete(secret.Data, "server") }, event: "server is no name"},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			s := newServer(t)
			secret := s.secret(t)
			if tc.change != nil {
				tc.change(s, secret)
			}
			deleted := metav1.NewTime(time.Now().Add(-tc.age))
			config := &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: "w-1", DeletionTimestamp: &deleted, Finalizers: []string{bootstrapv1.PuppetFinalizer},
			}}
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(secret, config).Build()
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			recorder := events.NewFakeRecorder(5)
			r := &Revoker{Client: c, Recorder: recorder, Namespace: "nova"}
			var machine *clusterv1.Machine
			if tc.machine {
				machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "w-1", UID: uid}}
				if !tc.alive {
					machine.DeletionTimestamp = &deleted
				}
			}
			result, err := r.Delete(ctx, config, machine, tc.foreign)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.IsZero()).To(Equal(!tc.retried))
			g.Expect(s.requests).To(HaveLen(tc.requests))
			for _, got := range s.requests {
				g.Expect(got).To(Equal(request))
			}
			err = c.Get(ctx, client.ObjectKeyFromObject(config), config)
			g.Expect(apierrors.IsNotFound(err)).To(Equal(!tc.retried), "the NovaConfig is deleted")
			if tc.event == "" {
				g.Expect(recorder.Events).To(BeEmpty())
				return
			}
			g.Expect(recorder.Events).To(Receive(And(ContainSubstring(tc.event), Not(ContainSubstring("secret-key")))))
		})
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// The finalizer is there before the first token, and is added once.
func TestHold(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	config := &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "w-1"}}
	patches := 0
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(config).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			patches++
			return c.Patch(ctx, o, p, options...)
		},
	}).Build()
	for range 2 {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		g.Expect((&Revoker{Client: c}).Hold(ctx, config)).To(Succeed())
	}
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
	g.Expect(config.Finalizers).To(Equal([]string{bootstrapv1.PuppetFinalizer}))
	g.Expect(patches).To(Equal(1))
}
