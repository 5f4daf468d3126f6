package workload

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

var blue = client.ObjectKey{Namespace: "team", Name: "blue"}

// newAuthority returns an authority that has a CA for the cluster, and a
// kubeconfig for server with a certificate of that CA.
func newAuthority(tb testing.TB, server, ca string) (client.WithWatch, *pki.Managed, string) {
	tb.Helper()
	secrets := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	authority := pki.NewManaged(secrets)
	if err := authority.Ensure(tb.Context(), blue, metav1.OwnerReference{APIVersion: "v1", Kind: "Cluster", Name: "blue", UID: "1"}, 0); err != nil {
		tb.Fatal(err)
	}
	pair, err := authority.Client(tb.Context(), blue, pki.ClientRequest{CommonName: "kubernetes-admin", Organizations: []string{"people"}, TTL: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return secrets, authority, withCertificate(server, ca, pair)
}

func withCertificate(server, ca string, pair pki.KeyPair) string {
	return strings.Replace(kubeconfig(server, ca, "", ""), "token: tenants-own", fmt.Sprintf("client-certificate-data: %s, client-key-data: %s",
		base64.StdEncoding.EncodeToString(pair.Certificate), base64.StdEncoding.EncodeToString(pair.Key)), 1)
}

// rbacServer is an API server that lets users of nova:managers do everything
// once their permissions are complete, and administrators write permissions.
type rbacServer struct {
	*httptest.Server
	tb testing.TB

	mu      sync.Mutex
	objects client.WithWatch
	// late is how many requests are forbidden after the permissions are there.
	late int
	// lost is the name of an object whose creation is not confirmed once.
	lost string
	// seen are the users of requests, with their operations.
	seen []string
}

func newRBACServer(tb testing.TB) *rbacServer {
	tb.Helper()
	kinds := runtime.NewScheme()
	if err := rbacv1.AddToScheme(kinds); err != nil {
		tb.Fatal(err)
	}
	s := &rbacServer{tb: tb, objects: fake.NewClientBuilder().WithScheme(kinds).Build()}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.EnableHTTP2 = true
	return s
}

// start serves, and trusts clients of the CA.
func (s *rbacServer) start(tb testing.TB, ca []byte) {
	tb.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.StartTLS()
	tb.Cleanup(s.Close)
}

func (s *rbacServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	subject := r.TLS.PeerCertificates[0].Subject
	s.seen = append(s.seen, fmt.Sprintf("%s/%s %s %s", subject.CommonName, strings.Join(subject.Organization, ","), r.Method, r.URL.Path))
	if strings.HasPrefix(r.URL.Path, "/apis/rbac.authorization.k8s.io/") && slices.Contains(subject.Organization, "system:masters") {
		s.rbac(w, r)
		return
	}
	role := &rbacv1.ClusterRoleBinding{}
	err := s.objects.Get(r.Context(), client.ObjectKey{Name: subject.CommonName}, role)
	if err == nil && s.late > 0 {
		s.late--
		err = io.EOF
	}
	if err != nil || len(role.Subjects) == 0 {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"},"data":{"got":"`+strconv.Itoa(len(body))+`"}}`)
}

// rbac serves the objects that Permissions has.
func (s *rbacServer) rbac(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/rbac.authorization.k8s.io/v1/"), "/")
	key := client.ObjectKey{}
	if parts[0] == "namespaces" {
		key.Namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 1 {
		key.Name = parts[1]
	}
	o := map[string]client.Object{
		"clusterroles": &rbacv1.ClusterRole{}, "clusterrolebindings": &rbacv1.ClusterRoleBinding{},
		"roles": &rbacv1.Role{}, "rolebindings": &rbacv1.RoleBinding{},
	}[parts[0]]
	var err error
	switch r.Method {
	case http.MethodGet:
		err = s.objects.Get(r.Context(), key, o)
	case http.MethodPost:
		if err = json.NewDecoder(r.Body).Decode(o); err == nil {
			err = s.objects.Create(r.Context(), o)
		}
		if o.GetName() == s.lost && parts[0] == "clusterrolebindings" {
			s.lost = ""
			err = apierrors.NewTimeoutError("the response is lost", 0)
		}
	case http.MethodPut:
		if err = json.NewDecoder(r.Body).Decode(o); err == nil {
			err = s.objects.Update(r.Context(), o)
		}
	}
	var answer any = o
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		w.WriteHeader(int(status.Status().Code))
		answer = status.Status()
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.tb.Error(err)
	}
}

// users returns who made the requests, without those for permissions.
func (s *rbacServer) users() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var users []string
	for _, seen := range s.seen {
		if !strings.Contains(seen, "/rbac") {
			users = append(users, strings.Split(seen, " ")[0])
		}
	}
	return slices.Compact(users)
}

// connectTo starts server, and connects the user nova-test to it as the cluster
// cache does.
func connectTo(t *testing.T, server *rbacServer) (*User, *Secrets, kubernetes.Interface) {
	t.Helper()
	secrets, authority, _ := newAuthority(t, "https://x", "")
	ca, err := authority.ClusterCA(t.Context(), blue)
	if err != nil {
		t.Fatal(err)
	}
	server.start(t, ca)
	pair, err := authority.Client(t.Context(), blue, pki.ClientRequest{CommonName: "kubernetes-admin", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	text := withCertificate(server.URL, (&apiServer{Server: server.Server}).ca(), pair)
	if err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue-kubeconfig"}, Data: map[string][]byte{"value": []byte(text)},
	}); err != nil {
		t.Fatal(err)
	}
	user := &User{Name: "nova-test", Authority: authority, Permissions: Permissions{
		Cluster: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
		Bindings: []rbacv1.ClusterRoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Name: "nova:people"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		}},
	}}
	routed := NewSecrets(secrets, user, nil)
	clients, err := likeClusterCache(t.Context(), routed, "team", "blue")
	if err != nil {
		t.Fatal(err)
	}
	return user, routed, clients
}

// A manager connects as its own user where the CA of the kubeconfig's
// certificate is here, and writes its permissions when they are missing.
func TestUserConnects(t *testing.T) {
	server := newRBACServer(t)
	server.late = 3
	_, routed, clients := connectTo(t, server)
	// The first request is forbidden, and so are three after the permissions are
	// there. It is repeated with its body.
	made, err := clients.CoreV1().ConfigMaps("a").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Data["got"] == "0" {
		t.Error("the repeated request has no body")
	}
	if got := server.users(); !slices.Equal(got, []string{"nova-test/" + ManagersGroup}) {
		t.Errorf("users of requests: %v", got)
	}
	binding := &rbacv1.ClusterRoleBinding{}
	if err := server.objects.Get(t.Context(), client.ObjectKey{Name: "nova:people"}, binding); err != nil || binding.RoleRef.Name != "cluster-admin" {
		t.Errorf("the binding beside the user's own: %v", err)
	}

	// A route that needs a new certificate gets one, and clients go on.
	was, _ := routed.routeNow(blue)
	was.renew = time.Now().Add(-time.Second)
	if _, err := clients.CoreV1().ConfigMaps("a").Get(t.Context(), "c", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if is, _ := routed.routeNow(blue); is == was || is.renew.Before(time.Now().Add(timelimits.Daily/3)) {
		t.Error("the route was not renewed")
	}
}

// The API server creates the binding of the manager's own user, and its response is
// lost. No request of the manager is forbidden from then on, and the bindings after
// that one are still to be written.
func TestInterruptedPermissionsAreWritten(t *testing.T) {
	server := newRBACServer(t)
	server.lost = "nova-test"
	user, _, clients := connectTo(t, server)
	request := func() error {
		_, err := clients.CoreV1().ConfigMaps("a").Get(t.Context(), "c", metav1.GetOptions{})
		return err
	}
	people := func() error {
		return server.objects.Get(t.Context(), client.ObjectKey{Name: "nova:people"}, &rbacv1.ClusterRoleBinding{})
	}
	_ = request()
	if err := people(); server.lost != "" || !apierrors.IsNotFound(err) {
		t.Fatalf("the permissions were not interrupted: %v", err)
	}
	user.granters.Update(blue, func(g *granter) { g.last = g.last.Add(-timelimits.Reconnect) })
	if err := request(); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return people() == nil, nil
	})
	if err != nil {
		t.Error(people())
	}
}

// Permissions that an administrator keeps as they are stay so, and others are
// restored.
func TestPermissionsAreRestored(t *testing.T) {
	server := newRBACServer(t)
	p := Permissions{Cluster: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}}}
	write := func(want bool) *rbacv1.ClusterRoleBinding {
		t.Helper()
		if changed, err := p.Write(t.Context(), "u", server.objects); err != nil || changed != want {
			t.Fatalf("changed %t, want %t: %v", changed, want, err)
		}
		binding := &rbacv1.ClusterRoleBinding{}
		if err := server.objects.Get(t.Context(), client.ObjectKey{Name: "u"}, binding); err != nil {
			t.Fatal(err)
		}
		return binding
	}
	write(true)
	binding := write(false)
	binding.Subjects = nil
	if err := server.objects.Update(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	if binding = write(true); len(binding.Subjects) != 1 {
		t.Errorf("subjects: %v", binding.Subjects)
	}
	binding.Subjects, binding.Annotations = nil, map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
	if err := server.objects.Update(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	if binding = write(false); len(binding.Subjects) != 0 {
		t.Errorf("an administrator's binding: %v", binding.Subjects)
	}
}

// A kubeconfig whose certificate is of another CA, or that has a token, is used
// as it is.
func TestKubeconfigOfOthers(t *testing.T) {
	_, authority, own := newAuthority(t, "https://10.0.0.1:6443", "")
	_, foreignCA, foreign := newAuthority(t, "https://10.0.0.1:6443", "")
	none := pki.NewManaged(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build())
	for name, tc := range map[string]struct {
		authority  Authority
		kubeconfig string
		own        bool
	}{
		"Own":         {authority, own, true},
		"OwnOfOther":  {foreignCA, foreign, true},
		"OtherCA":     {authority, foreign, false},
		"Token":       {authority, kubeconfig("https://10.0.0.1:6443", "", "", ""), false},
		"NoAuthority": {none, own, false},
	} {
		t.Run(name, func(t *testing.T) {
			user := &User{Name: "nova-test", Authority: tc.authority}
			config, renew, err := user.RESTConfig(t.Context(), blue, []byte(tc.kubeconfig))
			if err != nil {
				t.Fatal(err)
			}
			given, err := RESTConfig([]byte(tc.kubeconfig))
			if err != nil {
				t.Fatal(err)
			}
			if same := bytes.Equal(config.CertData, given.CertData); same == tc.own || renew.IsZero() == tc.own {
				t.Errorf("as in the kubeconfig: %t, to be renewed %s", same, renew)
			}
		})
	}
}

func TestGranterDue(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		since             time.Duration
		forbidden, failed bool
		want              bool
	}{
		"Recent":          {since: timelimits.Reconnect - time.Second, forbidden: true},
		"Forbidden":       {since: timelimits.Reconnect, forbidden: true, want: true},
		"Allowed":         {since: timelimits.Hourly - time.Second},
		"AllowedForLong":  {since: timelimits.Hourly, want: true},
		"ForbiddenLately": {since: time.Second, forbidden: true},
		"Failed":          {since: timelimits.ShortPoll, failed: true, want: true},
		"FailedForbidden": {since: timelimits.ShortPoll, failed: true, forbidden: true, want: true},
		"FailedLately":    {since: timelimits.ShortPoll - time.Second, failed: true, forbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &granter{last: now.Add(-tc.since), failed: tc.failed}
			if got := g.due(tc.forbidden, now); got != tc.want || got && g.due(tc.forbidden, now) {
				t.Errorf("want %t, got %t", tc.want, got)
			}
		})
	}
}

// backdated is an authority that has just made its CA, and signs certificates that are valid
// from some minutes ago, as a vault does.
type backdated struct {
	ca  *x509.Certificate
	key *ecdsa.PrivateKey
}

func (a *backdated) ClusterCA(context.Context, client.ObjectKey) ([]byte, error) {
	return certs.EncodeCertPEM(a.ca), nil
}

func (a *backdated) Client(_ context.Context, _ client.ObjectKey, request pki.ClientRequest) (pki.KeyPair, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: request.CommonName}, NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(request.TTL),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, a.key.Public(), a.key)
	if err != nil {
		return pki.KeyPair{}, err
	}
	key, err := certs.EncodePrivateKeyPEMFromSigner(a.key)
	return pki.KeyPair{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: key}, err
}

// The managers use a user of their own at once in a cluster whose CA is new.
func TestKubeconfigBeforeItsCA(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	authority := &backdated{key: key}
	if authority.ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	administrator, err := authority.Client(t.Context(), blue, pki.ClientRequest{CommonName: "kubernetes-admin", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	user := &User{Name: "nova-test", Authority: authority}
	if signed, err := user.signed(t.Context(), blue, administrator.Certificate); err != nil || !signed {
		t.Errorf("signed by the CA of the cluster: %t, %v", signed, err)
	}
}
