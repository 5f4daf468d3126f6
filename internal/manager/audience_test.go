package manager

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// With an audience a manager serves metrics for tokens with it, and rejects the
// token that the same account uses at the API server. Permission to read
// metrics does not include profiles or the log level.
func TestDiagnosticsAudience(t *testing.T) {
	g := NewWithT(t)
	e, err := env.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	useEnv(t, e)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}}
	for _, o := range []client.Object{
		account,
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
			Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "prometheus"}},
		},
	} {
		g.Expect(e.Client.Create(t.Context(), o)).To(Succeed())
	}
	token := func(audiences ...string) string {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		g.Expect(e.Client.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
		return request.Status.Token
	}

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	o := parse(t, "--health-addr=127.0.0.1:0", "--diagnostics-address="+address, "--diagnostics-audience=nova-metrics")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, "nova-test", o, e.Scheme, func(context.Context, ctrl.Manager, *Options) error { return nil })
	}()
	t.Cleanup(func() {
		stop()
		g.Eventually(ended, 30*time.Second).Should(Receive(BeNil()))
	})

	scraper := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the manager signs its certificate itself
	}}
	get := func(path, token string) (int, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, http.NoBody)
		if err != nil {
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := scraper.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	bound := token("nova-metrics")
	g.Eventually(func() (int, error) { return get("/metrics", bound) }, time.Minute).Should(Equal(http.StatusOK))
	// The filter treats a token with another audience as a failed review.
	g.Expect(get("/metrics", token())).To(Equal(http.StatusInternalServerError))
	g.Expect(get("/metrics", token("another"))).To(Equal(http.StatusInternalServerError))
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v"} {
		g.Expect(get(path, bound)).To(Equal(http.StatusForbidden), path)
	}
}
