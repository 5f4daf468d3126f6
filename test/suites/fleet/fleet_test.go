package fleet

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

var everything = os.Getenv("NOVA_SUITES") == "full"

// address is below the ports that the kernel hands out.
const address = "127.0.0.1:21846"

// The program serves the page to a user of the login proxy, and a browser shows
// it and keeps it up to date.
func TestFleetPage(t *testing.T) {
	g := NewWithT(t)
	ctrl.SetLogger(logr.Discard())
	e, err := env.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	createClusters(g, e)
	runFleet(t, e)
	proxy := loginProxy(t, e)
	read := func() (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy, http.NoBody)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	g.Eventually(read, time.Minute, time.Second).Should(And(ContainSubstring("payments/production"), ContainSubstring("the datastore san-1 has no space left"), ContainSubstring("expire in 9 days"), ContainSubstring("overdue")))
	if !everything {
		return
	}
	folder := os.Getenv("NOVA_SCREENSHOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	for name, arguments := range map[string][]string{
		"fleet":       {"--window-size=1280,640"},
		"fleet-dark":  {"--window-size=1280,640", "--blink-settings=preferredColorScheme=0"},
		"fleet-phone": {"--window-size=500,1000"},
	} {
		file := filepath.Join(folder, name+".png")
		chromium(t, append(arguments, "--screenshot="+file), proxy)
		checkPicture(g, file)
	}
	// The script has replaced the table by the one of the first event.
	g.Eventually(func() string { return chromium(t, []string{"--dump-dom"}, proxy) }, 3*time.Minute).
		Should(And(ContainSubstring(`role="status">live<`), ContainSubstring("payments/production")))
	// A login that has expired: the browser does not connect again.
	ended := expiredLogin(t, proxy)
	g.Eventually(func() string { return chromium(t, []string{"--dump-dom"}, ended) }, 3*time.Minute).
		Should(And(ContainSubstring(`class="stale"`), MatchRegexp(`role="status">not updated since [^<]*, load the page again<`), ContainSubstring("payments/production")))
}

// expiredLogin is a proxy in front of the login proxy that passes the page on and
// rejects the events. It returns its address.
func expiredLogin(t *testing.T, login string) string {
	t.Helper()
	to, err := url.Parse(login)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	rejected := make(chan struct{}, 100)
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Set("User-Agent", "login")
	}, ModifyResponse: func(r *http.Response) error {
		if r.Request.URL.Path == "/" {
			r.Body = io.NopCloser(io.MultiReader(r.Body, held(func() {
				select {
				case <-rejected:
				case <-time.After(time.Minute):
				}
			})))
			r.ContentLength = -1
			r.Header.Del("Content-Length")
		}
		return nil
	}, FlushInterval: -1}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/events" {
			pass.ServeHTTP(w, r)
			return
		}
		http.Error(w, "Sign in", http.StatusUnauthorized)
		rejected <- struct{}{}
	}))
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	return proxy.URL
}

// checkPicture expects a picture with content: a page that its policy blocks is
// of one color.
func checkPicture(g *WithT, file string) {
	opened, err := os.Open(file)
	g.Expect(err).NotTo(HaveOccurred())
	picture, err := png.Decode(opened)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opened.Close()).To(Succeed())
	colors := map[[3]uint32]bool{}
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			r, gr, b, _ := picture.At(x, y).RGBA()
			colors[[3]uint32{r, gr, b}] = true
		}
	}
	g.Expect(len(colors)).To(BeNumerically(">", 10))
}

// chromium runs the browser without a window and returns its output.
func chromium(t *testing.T, arguments []string, page string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	all := append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking", "--no-first-run",
		"--user-data-dir=" + t.TempDir(), "--timeout=15000",
	}, arguments...)
	out, err := exec.CommandContext(ctx, "chromium", append(all, page)...).Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// stream calls a function when its first event has been passed on.
type stream struct {
	io.ReadCloser
	passed func()
	reads  int
}

func (s *stream) Read(to []byte) (int, error) {
	if s.reads++; s.reads == 2 {
		s.passed()
	}
	return s.ReadCloser.Read(to)
}

// held ends a page when its function returns. Chromium shows a page when it has
// all of it, which may be before the first event.
type held func()

func (h held) Read([]byte) (int, error) {
	h()
	return 0, io.EOF
}

// loginProxy adds the token of a user to each request, as the login proxy of a
// platform does, and returns its address.
func loginProxy(t *testing.T, e *env.Env) string {
	t.Helper()
	g := NewWithT(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}}
	meta := metav1.ObjectMeta{Name: "operator"}
	for _, o := range []client.Object{
		account,
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"list"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operator"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "operator"}},
		},
	} {
		g.Expect(e.Client.Create(t.Context(), o)).To(Succeed())
	}
	request := &authenticationv1.TokenRequest{}
	g.Expect(e.Client.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	to := &url.URL{Scheme: "http", Host: address}
	received := make(chan struct{}, 100)
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Set("Authorization", "Bearer "+request.Status.Token)
		r.Out.Header.Del("Accept-Encoding")
	}, ModifyResponse: func(r *http.Response) error {
		if r.Request.URL.Path == "/events" {
			r.Body = &stream{ReadCloser: r.Body, passed: func() { received <- struct{}{} }}
		}
		if r.Request.URL.Path != "/" || !strings.Contains(r.Request.UserAgent(), "Chrome") {
			return nil
		}
		text, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), held(func() {
			select {
			case <-received:
			case <-time.After(time.Minute):
			}
		})))
		r.ContentLength = -1
		r.Header.Del("Content-Length")
		return err
	}})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	return proxy.URL
}

// runFleet builds and runs nova-fleet until the test ends.
func runFleet(t *testing.T, e *env.Env) {
	t.Helper()
	g := NewWithT(t)
	binary, kubeconfig := filepath.Join(t.TempDir(), "nova-fleet"), filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(tools.Build(t.Context(), binary, "", "./cmd/nova-fleet")).To(Succeed())
	writeKubeconfig(t, e, kubeconfig)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary, "--kubeconfig="+kubeconfig, "--page-address="+address, "--health-addr=127.0.0.1:0", "--diagnostics-address=127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = log, log
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			output, _ := os.ReadFile(log.Name())
			t.Logf("Output of nova-fleet:\n%s", output)
		}
		_ = log.Close()
	})
}

// writeKubeconfig installs the manifests and writes a kubeconfig of the account
// in them.
func writeKubeconfig(t *testing.T, e *env.Env, path string) {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "kubectl")
	g.Expect(err).NotTo(HaveOccurred())
	admin := filepath.Join(t.TempDir(), "admin")
	g.Expect(os.WriteFile(admin, e.Kubeconfig(), 0o600)).To(Succeed())
	apply := exec.CommandContext(t.Context(), paths["kubectl"], "--kubeconfig", admin, "apply", "--validate=strict", "-k", "config/nova-fleet/default")
	apply.Dir = tools.Root()
	out, err := apply.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "nova-fleet-system", Name: "nova-fleet-manager"}}
	g.Expect(e.Client.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: e.Config.Host, CertificateAuthorityData: e.Config.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	g.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
}

// createClusters creates clusters in different states.
func createClusters(g *WithT, e *env.Env) {
	ctx := context.Background()
	now := time.Now()
	for _, namespace := range []string{"payments", "web"} {
		g.Expect(e.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	}
	count := func(n int32) *int32 { return &n }
	for i, c := range []struct {
		namespace, name, kind, message, rollout string
		available, initialized                  bool
		workers                                 int32
		expires, snapshot, next                 time.Duration
	}{
		{"payments", "production", "NovaVSphereCluster", "* WorkersAvailable:\n  * MachineDeployment production-md:\n    * Machine production-md-x4: the datastore san-1 has no space left", "", false, true, 2, 200 * 24 * time.Hour, -3 * time.Hour, time.Hour},
		{"payments", "staging", "NovaZVirtCluster", "", "* ControlPlane: 2 of 3 machines have version v1.36.3", true, true, 3, 9*24*time.Hour + time.Hour, -26 * time.Hour, -2 * time.Hour},
		{"web", "shop", "NovaProxmoxCluster", "", "", true, true, 3, 90 * 24 * time.Hour, -5 * time.Hour, time.Hour},
		{"web", "test", "NovaVSphereCluster", "* ControlPlaneAvailable: waiting for the first machine to initialize", "", false, false, 0, 0, 0, 0},
	} {
		meta := metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}
		cluster := &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: c.kind, Name: c.name},
			ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "NovaControlPlane", Name: c.name},
		}}
		g.Expect(e.Client.Create(ctx, cluster)).To(Succeed())
		status := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}
		cluster.Status.Initialization.ControlPlaneInitialized = &c.initialized
		cluster.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{DesiredReplicas: count(3), ReadyReplicas: count(map[bool]int32{true: 3}[c.initialized]), Versions: []clusterv1.StatusVersion{{Version: "v1.36.3", Replicas: 3}}}
		cluster.Status.Workers = &clusterv1.WorkersStatus{DesiredReplicas: count(3), ReadyReplicas: count(c.workers)}
		cluster.Status.Conditions = []metav1.Condition{
			{Type: clusterv1.ClusterAvailableCondition, Status: status[c.available], Reason: "Test", Message: c.message, LastTransitionTime: metav1.NewTime(now)},
			{Type: clusterv1.ClusterRollingOutCondition, Status: status[c.rollout != ""], Reason: "Test", Message: c.rollout, LastTransitionTime: metav1.NewTime(now)},
		}
		g.Expect(e.Client.Status().Update(ctx, cluster)).To(Succeed())
		if c.expires == 0 {
			continue
		}
		template := clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereMachineTemplate", Name: "a"}
		plane := &controlplanev1.NovaControlPlane{ObjectMeta: meta}
		plane.Spec.Version = "v1.36.3"
		plane.Spec.MachineTemplate.Spec.InfrastructureRef = template
		g.Expect(e.Client.Create(ctx, plane)).To(Succeed())
		plane.Status.Etcd.LastSnapshot = controlplanev1.EtcdSnapshotStatus{Name: "s", Time: metav1.NewTime(now.Add(c.snapshot)), Size: 1, Revision: 1}
		plane.Status.Etcd.NextSnapshotTime = &metav1.Time{Time: now.Add(c.next)}
		g.Expect(e.Client.Status().Update(ctx, plane)).To(Succeed())
		machine := &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprint(c.name, i), Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}},
			Spec:       clusterv1.MachineSpec{ClusterName: c.name, InfrastructureRef: template, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("a")}},
		}
		g.Expect(e.Client.Create(ctx, machine)).To(Succeed())
		machine.Status.CertificatesExpiryDate = metav1.NewTime(now.Add(c.expires))
		g.Expect(e.Client.Status().Update(ctx, machine)).To(Succeed())
	}
}
