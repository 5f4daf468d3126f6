package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// A user sees the clusters of the namespaces in which the user may list
// Clusters, with only the permissions of nova-fleet for the page itself.
func TestPage(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	ctrl.SetLogger(logr.Discard())
	e, err := env.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	s := &site{Env: e, t: t, g: g, address: servePage(t, e)}
	blue := s.cluster("team-a", "blue", `* WorkersAvailable: <script>alert("x")</script>`)
	s.cluster("team-b", "red", "* ControlPlaneAvailable: no quorum")

	teamA, everywhere, nothing := s.account("team-a"), s.account("*"), s.account("")
	for _, path := range []string{"/", "/events"} {
		for _, token := range []string{"", "not-a-token"} {
			response := s.get(path, token)
			g.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), path)
			g.Expect(text(g, response)).NotTo(ContainSubstring("blue"))
		}
	}
	g.Eventually(func() string { return text(g, s.get("/", everywhere)) }).Should(And(ContainSubstring("team-a/blue"), ContainSubstring("team-b/red"), ContainSubstring("no quorum"))) //nolint:bodyclose // text closes it
	own := s.get("/", teamA)
	defer func() { _ = own.Body.Close() }()
	g.Expect(own.Header.Get("Content-Security-Policy")).To(And(ContainSubstring("default-src 'none'"), Not(ContainSubstring("unsafe"))))
	shown := text(g, own)
	g.Expect(shown).To(And(ContainSubstring("team-a/blue"), ContainSubstring(`<script src="page.js">`), Not(ContainSubstring("team-b")), Not(ContainSubstring("red")), Not(ContainSubstring("<script>alert")), ContainSubstring("&lt;script&gt;alert")))
	g.Expect(text(g, s.get("/", nothing))).To(And(ContainSubstring(`role="status">no permission to list Clusters<`), ContainSubstring("You may not list Clusters"), Not(ContainSubstring("blue")), Not(ContainSubstring("<script")))) //nolint:bodyclose // text closes it
	g.Expect(s.head("/other", teamA).StatusCode).To(Equal(http.StatusNotFound))                                                                                                                                                       //nolint:bodyclose // head closes it
	for path, kind := range map[string]string{"/style.css": "text/css", "/page.js": "text/javascript"} {
		g.Expect(s.head(path, "").Header.Get("Content-Type")).To(ContainSubstring(kind)) //nolint:bodyclose // head closes it
	}

	g.Expect(s.head("/events", nothing).StatusCode).To(Equal(http.StatusNoContent), "a user without permissions holds no stream") //nolint:bodyclose // head closes it

	stream := s.get("/events", teamA) //nolint:bodyclose // it is closed below
	events := make(chan string, 100)
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
			events <- lines.Text()
		}
	}()
	t.Cleanup(func() { _ = stream.Body.Close() })
	g.Eventually(events).Should(Receive(ContainSubstring("team-a/blue")))
	s.report(blue, "* InfrastructureReady: the datastore is full")
	g.Eventually(events).Should(Receive(ContainSubstring("InfrastructureReady: the datastore is full")))
}

// A token that the API server cannot review is not a rejected one: the browser must not
// begin a new login.
func TestAPIServerThatDoesNotRespond(t *testing.T) {
	g := NewWithT(t)
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(closed.Close()).To(Succeed())
	users, err := newUsers(&rest.Config{Host: "http://" + closed.Addr().String()}, http.DefaultClient)
	g.Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer token")
	w := newRecorder()
	(&page{users: users}).handler().ServeHTTP(w, request)
	g.Expect(w.code).To(Equal(http.StatusServiceUnavailable))
	g.Expect(w.Header()).NotTo(HaveKey("Www-Authenticate"))
}

// Open pages are bounded.
func TestStreamsAreBounded(t *testing.T) {
	g := NewWithT(t)
	p := &page{streams: make(chan struct{}, maxOwnStreams+1)}
	isRefused := func(name string) {
		w := newRecorder()
		p.stream(w, (&http.Request{}).WithContext(t.Context()), &user.DefaultInfo{Name: name})
		g.Expect(w.code).To(Equal(http.StatusServiceUnavailable))
		g.Expect(w.Header().Get("Retry-After")).NotTo(BeEmpty())
	}
	for range maxOwnStreams {
		g.Expect(p.acquire("a")).To(BeTrue())
	}
	isRefused("a")
	g.Expect(p.acquire("b")).To(BeTrue(), "another user can open the page")
	isRefused("c")
	p.release("a")
	g.Expect(p.acquire("a")).To(BeTrue())
	for range maxOwnStreams {
		p.release("a")
	}
	p.release("b")
	g.Expect(p.opened).To(BeEmpty())
}

type recorder struct {
	http.ResponseWriter
	header http.Header
	code   int
}

func newRecorder() *recorder                       { return &recorder{header: http.Header{}} }
func (r *recorder) Header() http.Header            { return r.header }
func (r *recorder) WriteHeader(code int)           { r.code = code }
func (r *recorder) Write(text []byte) (int, error) { return len(text), nil }

// site is a management cluster with the page.
type site struct {
	*env.Env
	t       *testing.T
	g       *WithT
	address string
	n       int
}

// cluster creates a Cluster that is not available, and its namespace.
func (s *site) cluster(namespace, name, message string) *clusterv1.Cluster {
	s.g.Expect(s.Client.Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: name},
	}}
	s.g.Expect(s.Client.Create(s.t.Context(), c)).To(Succeed())
	s.report(c, message)
	return c
}

// report sets the condition of a Cluster.
func (s *site) report(c *clusterv1.Cluster, message string) {
	c.Status.Initialization.ControlPlaneInitialized = new(true)
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterAvailableCondition, Status: metav1.ConditionFalse, Reason: "NotAvailable", Message: message, LastTransitionTime: metav1.Now()}}
	s.g.Expect(s.Client.Status().Update(s.t.Context(), c)).To(Succeed())
}

// account returns the token of an account that may list Clusters in a
// namespace, in all of them (*) or in none.
func (s *site) account(namespace string) string {
	s.n++
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("user-", s.n)}}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"list"}}},
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account.Name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account.Name}}
	objects := []client.Object{account, role}
	switch namespace {
	case "":
	case "*":
		objects = append(objects, &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: ref, Subjects: subjects})
	default:
		objects = append(objects, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name}, RoleRef: ref, Subjects: subjects})
	}
	for _, o := range objects {
		s.g.Expect(s.Client.Create(s.t.Context(), o)).To(Succeed())
	}
	request := &authenticationv1.TokenRequest{}
	s.g.Expect(s.Client.SubResource("token").Create(s.t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

// get requests a path as the login proxy does.
func (s *site) get(path, token string) *http.Response {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.address+path, http.NoBody)
	s.g.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	s.g.Expect(err).NotTo(HaveOccurred())
	return response
}

// head requests a path and closes the response.
func (s *site) head(path, token string) *http.Response {
	response := s.get(path, token)
	s.g.Expect(response.Body.Close()).To(Succeed())
	return response
}

func text(g *WithT, response *http.Response) string {
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	return string(body)
}

// servePage serves the page with the permissions of nova-fleet and returns its
// address.
func servePage(t *testing.T, e *env.Env) string {
	t.Helper()
	g := NewWithT(t)
	config, err := e.User("nova-fleet")
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range []string{"nova-fleet/rbac/role.yaml", "base/rbac/metrics_role.yaml"} {
		content, err := os.ReadFile(filepath.Join(tools.Root(), "config", filepath.FromSlash(file)))
		g.Expect(err).NotTo(HaveOccurred())
		role := &rbacv1.ClusterRole{}
		g.Expect(yaml.Unmarshal(content, role)).To(Succeed())
		g.Expect(e.Client.Create(t.Context(), role)).To(Succeed())
		g.Expect(e.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "nova-fleet"}},
		})).To(Succeed())
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: e.Scheme, Metrics: server.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(t.Context())
	g.Expect(Setup(ctx, mgr, address, "")).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		g.Eventually(ended, time.Minute).Should(Receive(BeNil()))
	})
	g.Eventually(func() error {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}, time.Minute).Should(Succeed())
	return strings.TrimSpace(address)
}
