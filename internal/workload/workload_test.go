package workload

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// apiServer counts the requests that it gets.
type apiServer struct {
	*httptest.Server
	requests atomic.Int32
}

func newAPIServer(tb testing.TB, handle http.HandlerFunc) *apiServer {
	tb.Helper()
	s := &apiServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if handle != nil {
			handle(w, r)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	tb.Cleanup(s.Close)
	return s
}

func (s *apiServer) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// kubeconfig has more lines in the cluster and in the user.
func kubeconfig(server, ca, ofCluster, ofUser string) string {
	if ca != "" {
		ca = ", certificate-authority-data: " + ca
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: x
contexts:
- {name: x, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: %q%s%s}}
users:
- {name: u, user: {token: tenants-own%s}}
`, server, ca, ofCluster, ofUser)
}

// attack is a kubeconfig that must not be used, and the field that is named.
type attack struct {
	kubeconfig, field string
}

// certificateData is loaded only when a connection is made.
const certificateData = "certificate data"

// attacks lead to server; marker is a file that a program of the attack writes.
func attacks(server *apiServer, token, marker string) map[string]attack {
	ca := server.ca()
	user := func(text string) string { return kubeconfig(server.URL, ca, "", ", "+text) }
	cluster := func(text string) string { return kubeconfig(server.URL, ca, ", "+text, "") }
	plain := strings.Replace(server.URL, "https://", "http://", 1)
	return map[string]attack{
		"tokenFile":                     {user("tokenFile: " + token), "users[].user.tokenFile"},
		"tokenFile in another spelling": {user("TOKENFILE: " + token), "users[].user.tokenFile"},
		"exec": {user(`exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [` + marker + `], interactiveMode: Never}`),
			"users[].user.exec"},
		"auth-provider":              {user("auth-provider: {name: oidc, config: {idp-issuer-url: https://evil.example}}"), "users[].user.auth-provider"},
		"client-certificate":         {user("client-certificate: " + token), "users[].user.client-certificate"},
		"client-key":                 {user("client-key: " + token), "users[].user.client-key"},
		"as":                         {user("as: system:admin"), "users[].user.as"},
		"as-uid":                     {user("as-uid: a"), "users[].user.as-uid"},
		"as-groups":                  {user("as-groups: [system:masters]"), "users[].user.as-groups"},
		"as-user-extra":              {user("as-user-extra: {a: [b]}"), "users[].user.as-user-extra"},
		"username":                   {user("username: admin"), "users[].user.username"},
		"password":                   {user("password: secret"), "users[].user.password"},
		"certificate-authority":      {cluster("certificate-authority: " + token), "clusters[].cluster.certificate-authority"},
		"insecure-skip-tls-verify":   {kubeconfig(server.URL, "", ", insecure-skip-tls-verify: true", ""), "clusters[].cluster.insecure-skip-tls-verify"},
		"proxy-url":                  {cluster("proxy-url: http://evil.example:3128"), "clusters[].cluster.proxy-url"},
		"Plain HTTP":                 {kubeconfig(plain, "", "", ""), "clusters[].cluster.server"},
		"No scheme":                  {kubeconfig(server.Listener.Addr().String(), ca, "", ""), "clusters[].cluster.server"},
		"A scheme of this process":   {kubeconfig(scheme+"://1/other/cluster", "", "", ""), "clusters[].cluster.server"},
		"A file":                     {kubeconfig("file:///etc/passwd", "", "", ""), "clusters[].cluster.server"},
		"A user in the URL":          {kubeconfig(strings.Replace(server.URL, "https://", "https://a:b@", 1), ca, "", ""), "clusters[].cluster.server"},
		"A query":                    {kubeconfig(server.URL+"?a=b", ca, "", ""), "clusters[].cluster.server"},
		"A port that does not exist": {kubeconfig("https://127.0.0.1:99999", ca, "", ""), "clusters[].cluster.server"},
		"No server":                  {kubeconfig("", ca, "", ""), "clusters[].cluster.server"},
		"A key that is none":         {user("client-certificate-data: YQ==, client-key-data: YQ=="), certificateData},
		"A CA that is none":          {kubeconfig(server.URL, "YQ==", "", ""), certificateData},
		"A token with a line break":  {strings.Replace(kubeconfig(server.URL, ca, "", ""), "tenants-own", `"a\r\nX-Remote-User: admin"`, 1), "users[].user.token"},
		"Another context":            {strings.Replace(kubeconfig(server.URL, ca, "", ""), "current-context: x", "current-context: y", 1), "current-context"},
		"Garbage":                    {"garbage", "value"},
		"Nothing":                    {"", "current-context"},
		"Too large":                  {user("token: " + strings.Repeat("a", maxKubeconfig)), "value"},
		"Nested aliases":             {bomb(), "value"},
	}
}

// bomb is YAML that grows by a factor of ten with each line.
func bomb() string {
	var text strings.Builder
	text.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&text, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9), i)
	}
	text.WriteString("clusters: *a9\n")
	return text.String()
}

// likeClusterCache makes a client as Cluster API's cluster cache does.
func likeClusterCache(ctx context.Context, secrets client.Reader, namespace, cluster string) (*kubernetes.Clientset, error) {
	s := &corev1.Secret{}
	if err := secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster + "-kubeconfig"}, s); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Data["value"])
	if err != nil {
		return nil, err
	}
	config.Timeout = timelimits.Fresh
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfigAndClient(config, httpClient)
}

func newReader(tb testing.TB, kubeconfig string) client.WithWatch {
	tb.Helper()
	types := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(types), clusterv1.AddToScheme(types)); err != nil {
		tb.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: "team", Name: "blue"}
	return fake.NewClientBuilder().WithScheme(types).WithObjects(
		&clusterv1.Cluster{ObjectMeta: meta},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue-kubeconfig"}, Data: map[string][]byte{"value": []byte(kubeconfig)}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue-ca"}, Data: map[string][]byte{"tls.crt": []byte("a")}},
	).Build()
}

func TestAttacks(t *testing.T) {
	server := newAPIServer(t, nil)
	dir := t.TempDir()
	token, marker := filepath.Join(dir, "token"), filepath.Join(dir, "marker")
	if err := os.WriteFile(token, []byte("managers-own"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, attack := range attacks(server, token, marker) {
		t.Run(name, func(t *testing.T) {
			var refused *RefusedError
			if _, err := RESTConfig([]byte(attack.kubeconfig)); attack.field != certificateData && (!errors.As(err, &refused) || refused.Field != attack.field) {
				t.Errorf("RESTConfig: want %q to be refused, got %v", attack.field, err)
			}

			recorder := events.NewFakeRecorder(10)
			secrets := NewSecrets(newReader(t, attack.kubeconfig), nil, recorder)
			for range 2 {
				clients, err := likeClusterCache(t.Context(), secrets, "team", "blue")
				if err == nil {
					_, err = clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
				}
				if !errors.As(err, &refused) || refused.Field != attack.field {
					t.Errorf("Secrets: want %q to be refused, got %v", attack.field, err)
				}
			}
			if err := secrets.Refused(client.ObjectKey{Namespace: "team", Name: "blue"}); err == nil || !strings.Contains(err.Error(), attack.field) {
				t.Errorf("Refused: want %q, got %v", attack.field, err)
			}
			if len(recorder.Events) != 1 {
				t.Fatalf("want one event, got %d", len(recorder.Events))
			}
			if got := <-recorder.Events; !strings.Contains(got, KubeconfigRefusedReason) || !strings.Contains(got, attack.field) {
				t.Errorf("event: %s", got)
			}

			if n := server.requests.Load(); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
			if _, err := os.Stat(marker); err == nil {
				t.Error("a program was executed")
			}
		})
	}
}

// The refusal is text for people and holds nothing of the kubeconfig.
func TestRefusalHasNoCredentials(t *testing.T) {
	for _, text := range []string{"users: [token: secret-value", "secret-value", "{users: secret-value}", "users: [{name: u, user: {token: [secret-value]}}]"} {
		_, err := RESTConfig([]byte(text))
		if err == nil || strings.Contains(err.Error(), "secret-value") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSecretsConnect(t *testing.T) {
	var authorization, encoding, path, userAgent string
	server := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		authorization, encoding, path, userAgent = r.Header.Get("Authorization"), r.Header.Get("Accept-Encoding"), r.URL.Path, r.Header.Get("User-Agent")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "injected into the log"`)
		_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n1"}}]}`)
	})
	reader := newReader(t, kubeconfig(server.URL+"/prefix", server.ca(), "", ""))
	secrets := NewSecrets(reader, nil, nil)
	clients, err := likeClusterCache(t.Context(), secrets, "team", "blue")
	if err != nil {
		t.Fatal(err)
	}
	list := func() {
		t.Helper()
		nodes, err := clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 1 {
			t.Fatalf("listing nodes: %v", err)
		}
	}
	list()
	if authorization != "Bearer tenants-own" || path != "/prefix/api/v1/nodes" || encoding != "" || userAgent == "" {
		t.Errorf("request: authorization %q, path %q, accepted encoding %q, user agent %q", authorization, path, encoding, userAgent)
	}

	// The cluster cache is given no credential.
	given := &corev1.Secret{}
	if err := secrets.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "blue-kubeconfig"}, given); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(given.Data["value"]), "tenants-own") {
		t.Error("the cluster cache is given the token")
	}

	// A renewed kubeconfig counts for the clients that are there.
	stored := &corev1.Secret{}
	key := client.ObjectKey{Namespace: "team", Name: "blue-kubeconfig"}
	if err := reader.Get(t.Context(), key, stored); err != nil {
		t.Fatal(err)
	}
	stored.Data["value"] = []byte(strings.Replace(string(stored.Data["value"]), "tenants-own", "renewed", 1))
	if err := reader.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if err := secrets.Get(t.Context(), key, &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	list()
	if authorization != "Bearer renewed" {
		t.Errorf("authorization after the renewal: %q", authorization)
	}

	// Other Secrets are as they are.
	ca := &corev1.Secret{}
	if err := secrets.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "blue-ca"}, ca); err != nil || string(ca.Data["tls.crt"]) != "a" {
		t.Errorf("another Secret: %v", err)
	}

	// Without the Secret there is no way.
	if err := reader.Delete(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if err := secrets.Get(t.Context(), key, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted Secret: %v", err)
	}
	if _, err := clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !errors.Is(err, errUnknown) {
		t.Errorf("a deleted kubeconfig: %v", err)
	}
}

func TestRedirectIsRefused(t *testing.T) {
	other := newAPIServer(t, nil)
	for _, code := range []int{301, 302, 303, 307, 308} {
		server := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/api/v1/nodes", code) })
		clients, err := likeClusterCache(t.Context(), NewSecrets(newReader(t, kubeconfig(server.URL, server.ca(), "", "")), nil, nil), "team", "blue")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !errors.Is(err, ErrRedirect) {
			t.Errorf("%d: want ErrRedirect, got %v", code, err)
		}
	}
	if n := other.requests.Load(); n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}

// client-go would wait this long, ten times and without a context that ends, and
// keep one of the workers that connect to all clusters.
func TestRetryAfterIsNotWaitedFor(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			server := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(code)
			})
			clients, err := likeClusterCache(t.Context(), NewSecrets(newReader(t, kubeconfig(server.URL, server.ca(), "", "")), nil, nil), "team", "blue")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil || ctx.Err() != nil {
				t.Errorf("%v, %v", err, ctx.Err())
			}
		})
	}
}

func TestDeniedAddresses(t *testing.T) {
	server := newAPIServer(t, nil)
	policy, err := endpoints.New(nil, nil, "10.96.0.1")
	if err != nil {
		t.Fatal(err)
	}
	// A name is resolved when the connection is made.
	named := kubeconfig(strings.Replace(server.URL, "127.0.0.1", "localhost.localdomain", 1), server.ca(), "", "")
	endpoints.Set(policy)
	t.Cleanup(func() { endpoints.Set(endpoints.Policy{}) })
	for _, address := range []string{server.URL, "https://localhost:6443", "https://[::1]:6443", "https://169.254.169.254", "https://10.96.0.1", "https://0.0.0.0:6443"} {
		var refused *RefusedError
		if _, err := RESTConfig([]byte(kubeconfig(address, server.ca(), "", ""))); !errors.As(err, &refused) || refused.Field != "clusters[].cluster.server" {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := Server("https://169.254.169.254"); err == nil {
		t.Error("a kubeconfig would be issued for a denied address")
	}
	config, err := RESTConfig([]byte(named))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Dial(t.Context(), "tcp", server.Listener.Addr().String()); !errors.Is(err, endpoints.ErrDenied) {
		t.Errorf("dialing a name with a denied address: %v", err)
	}
	if n := server.requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// endless writes without end.
func endless(w io.Writer, chunk string) {
	for {
		if _, err := io.WriteString(w, chunk); err != nil {
			return
		}
	}
}

func TestResponsesHaveBounds(t *testing.T) {
	chunk := strings.Repeat("a", 64<<10)
	server := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/api/v1/nodes/error") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, `{"kind":"`)
		endless(w, chunk)
	})
	clients, err := likeClusterCache(t.Context(), NewSecrets(newReader(t, kubeconfig(server.URL, server.ca(), "", "")), nil, nil), "team", "blue")
	if err != nil {
		t.Fatal(err)
	}
	for path, bound := range map[string]int64{
		"/api/v1/nodes":                       maxList,
		"/api/v1/nodes/n1":                    maxObject,
		"/api/v1/namespaces/kube-system":      maxObject,
		"/api/v1/namespaces/kube-system/pods": maxList,
		"/apis":                               maxObject,
		"/apis/certificates.k8s.io/v1":        maxObject,
		"/apis/certificates.k8s.io/v1/a":      maxList,
		"/apis/apps/v1/namespaces/a/b":        maxList,
		"/apis/apps/v1/namespaces/a/b/c":      maxObject,
		"/api/v1/nodes/error":                 maxError,
	} {
		body, err := clients.CoreV1().RESTClient().Get().AbsPath(path).Stream(t.Context())
		if bound == maxError {
			// client-go reads the error itself, and its message is bounded.
			if err == nil || len(err.Error()) > maxError {
				t.Errorf("%s: an error of %d bytes", path, len(fmt.Sprint(err)))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		n, err := io.Copy(io.Discard, body)
		if !errors.Is(err, ErrTooLarge) || n > bound || n < bound-1<<20 {
			t.Errorf("%s: %d bytes and %v, want %d", path, n, err, bound)
		}
		_ = body.Close()
	}
}

// A cache keeps the objects of all watches since its last list.
func TestWatchesHaveBounds(t *testing.T) {
	chunk := strings.Repeat("a", 64<<10)
	server := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1"}`)
			return
		}
		for range maxList / len(chunk) * 6 / 10 {
			_, _ = io.WriteString(w, chunk)
		}
	})
	clients, err := likeClusterCache(t.Context(), NewSecrets(newReader(t, kubeconfig(server.URL, server.ca(), "", "")), nil, nil), "team", "blue")
	if err != nil {
		t.Fatal(err)
	}
	watch := func(parameters ...string) (int64, error) {
		request := clients.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes").Param("watch", "true")
		for i := 0; i < len(parameters); i += 2 {
			request = request.Param(parameters[i], parameters[i+1])
		}
		body, err := request.Stream(t.Context())
		if err != nil {
			return 0, err
		}
		defer func() { _ = body.Close() }()
		return io.Copy(io.Discard, body)
	}
	if n, err := watch(); err != nil {
		t.Errorf("the first watch: %d bytes, %v", n, err)
	}
	if n, err := watch(); !errors.Is(err, ErrTooLarge) || n > maxList {
		t.Errorf("the second watch: %d bytes, %v", n, err)
	}
	if _, err := watch(); !apierrors.IsResourceExpired(err) {
		t.Errorf("the third watch: %v", err)
	}
	if n, err := watch("fieldSelector", "metadata.name=a"); err != nil {
		t.Errorf("a watch of another selection: %d bytes, %v", n, err)
	}
	if _, err := clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if n, err := watch(); err != nil {
		t.Errorf("a watch after a list: %d bytes, %v", n, err)
	}
	for range 2 {
		if n, err := watch("sendInitialEvents", "true"); err != nil {
			t.Errorf("a watch that begins with a list: %d bytes, %v", n, err)
		}
	}
}

func FuzzRESTConfig(f *testing.F) {
	server := newAPIServer(f, nil)
	for _, attack := range attacks(server, "/nonexistent/token", "/nonexistent/marker") {
		f.Add([]byte(attack.kubeconfig))
	}
	f.Add([]byte(kubeconfig(server.URL, server.ca(), "", "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := RESTConfig(data)
		if err != nil {
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Field == "" {
				t.Fatalf("an error without a field: %v", err)
			}
			return
		}
		if !strings.HasPrefix(config.Host, "https://") || config.Insecure || config.Proxy != nil || config.ExecProvider != nil ||
			config.AuthProvider != nil || config.BearerTokenFile != "" || config.CAFile != "" || config.CertFile != "" || config.KeyFile != "" ||
			config.Username != "" || config.Impersonate.UserName != "" || config.WrapTransport == nil || !config.DisableCompression {
			t.Fatalf("a config with more than it may have for %q", data)
		}
	})
}

// A client requests only the API groups that it uses: aggregated discovery would keep the
// types of all groups of all workload clusters in memory.
func TestDiscoveryReadsUsedGroups(t *testing.T) {
	var mutex sync.Mutex
	var paths []string
	server := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		paths = append(paths, r.URL.Path)
		mutex.Unlock()
		if strings.Contains(r.Header.Get("Accept"), "APIGroupDiscoveryList") {
			// An API server prefers the aggregated form.
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, map[string]string{
			"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
			"/apis":   `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}`,
			"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes","kind":"Node"}]}`,
		}[r.URL.Path])
	})
	secrets := NewSecrets(newReader(t, kubeconfig(server.URL, server.ca(), "", "")), nil, nil)
	config := restConfigOf(t, secrets)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Kind: "Node"}, "v1")
	if err != nil || mapping.Resource.Resource != "nodes" {
		t.Errorf("mapping of Node: %v, %v", mapping, err)
	}
	if want := []string{"/api", "/apis", "/api/v1"}; !slices.Equal(paths, want) {
		t.Errorf("requests for %v, want %v", paths, want)
	}
}

// restConfigOf returns the configuration that Cluster API's cluster cache reads.
func restConfigOf(tb testing.TB, secrets client.Reader) *rest.Config {
	tb.Helper()
	s := &corev1.Secret{}
	if err := secrets.Get(tb.Context(), client.ObjectKey{Namespace: "team", Name: "blue-kubeconfig"}, s); err != nil {
		tb.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Data["value"])
	if err != nil {
		tb.Fatal(err)
	}
	return config
}
