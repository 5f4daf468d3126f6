package monitoring

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// address is where the manager serves metrics. The port is below those that
// the kernel hands out.
const address = "127.0.0.1:21843"

// A real manager serves its metrics only to the service account of the samples,
// and exports the metrics of libraries that the alerts and the dashboard use.
// The samples are validated with the operator's own CRDs.
func TestManagers(t *testing.T) {
	g := NewWithT(t)
	ctrl.SetLogger(logr.Discard())
	operator, err := tools.ToolDir(t.Context(), "prometheus-operator", "github.com/prometheus-operator/prometheus-operator")
	g.Expect(err).NotTo(HaveOccurred())
	e, err := env.Start(t.Context(), filepath.Join(operator, "example", "prometheus-operator-crd"))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	kubeconfig := kubeconfigOf(t, e)
	applySamples(t, e, kubeconfig)

	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue"}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AnyCluster", Name: "c"},
	}}
	g.Expect(e.Client.Create(t.Context(), cluster)).To(Succeed())
	cluster.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ClusterWorkersAvailableCondition, Status: metav1.ConditionFalse, Reason: "NotAvailable", LastTransitionTime: metav1.Now(),
	}}
	g.Expect(e.Client.Status().Update(t.Context(), cluster)).To(Succeed())
	runManager(t, kubeconfig)

	reader := tokenOf(t, e, "monitoring", "nova-metrics-reader")
	var families map[string]*dto.MetricFamily
	g.Eventually(func(g Gomega) {
		status, body := scrape(t.Context(), g, reader)
		g.Expect(status).To(Equal(http.StatusOK))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		var err error
		families, err = parser.TextToMetricFamilies(strings.NewReader(body))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(families).To(HaveKey("nova_condition"), "the manager leads")
		g.Expect(families).To(HaveKey("workqueue_longest_running_processor_seconds"))
		g.Expect(families).To(HaveKey("rest_client_requests_total"))
		g.Expect(families).To(HaveKey("controller_runtime_reconcile_time_seconds"), "the cluster cache has looked at the Cluster")
	}, 2*time.Minute, time.Second).Should(Succeed())
	leads := families["leader_election_master_status"].GetMetric()
	g.Expect(leads).To(HaveLen(1))
	g.Expect(leads[0].GetLabel()[0].GetValue()).To(Equal("nova-control-plane-leader"), "the alerts know it by this name")
	g.Expect(leads[0].GetGauge().GetValue()).To(Equal(1.0))
	status, _ := scrape(t.Context(), g, "")
	g.Expect(status).To(Equal(http.StatusUnauthorized))
	status, _ = scrape(t.Context(), g, tokenOf(t, e, "monitoring", "default"))
	g.Expect(status).To(Equal(http.StatusForbidden))
	mayRead(t, e, "system:serviceaccount:monitoring:nova-metrics-reader", map[string]bool{
		"/metrics": true, "/debug/pprof/heap": false, "/debug/flags/v": false,
	})

	checkLibraries(t, families)
	checkQueries(t, e, reader)
}

// checkLibraries checks that a manager exports the metrics of libraries that
// expressions use. The capi_cluster_cache metrics exist as soon as there is a
// workload cluster.
func checkLibraries(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	all := expressions(t)
	where := slices.Sorted(maps.Keys(all))
	texts := make([]string, 0, len(where))
	for _, at := range where {
		texts = append(texts, all[at])
	}
	for i, u := range parsed(t, texts) {
		for _, s := range u.Selectors {
			if strings.HasPrefix(s.Metric, "nova_") || s.Metric == "up" || isState(s.Metric) {
				continue
			}
			if exists, _ := registered(s.Metric, documented{}); strings.HasPrefix(s.Metric, "capi_") {
				if !exists {
					t.Errorf("%s: no manager exports %s", where[i], s.Metric)
				}
				continue
			}
			family := families[suffixes.ReplaceAllString(s.Metric, "")]
			if family == nil {
				family = families[s.Metric]
			}
			if family == nil {
				t.Errorf("%s: nova-control-plane does not export %s", where[i], s.Metric)
				continue
			}
			for _, m := range s.Matchers {
				has := slices.ContainsFunc(family.GetMetric()[0].GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == m.Label })
				if !has && !slices.Contains(scraped, m.Label) {
					t.Errorf("%s: %s has no label %s", where[i], s.Metric, m.Label)
				}
			}
		}
	}
}

// kubeconfigOf writes a kubeconfig of an administrator.
func kubeconfigOf(t *testing.T, e *env.Env) string {
	t.Helper()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(path, e.Kubeconfig(), 0o600)).To(Succeed())
	return path
}

// applySamples applies config/monitoring as described in docs/alerts.md.
func applySamples(t *testing.T, e *env.Env, kubeconfig string) {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "kubectl")
	g.Expect(err).NotTo(HaveOccurred())
	for _, args := range [][]string{{"create", "namespace", "monitoring"}, {"apply", "--validate=strict", "-k", sample()}} {
		cmd := exec.CommandContext(t.Context(), paths["kubectl"], append([]string{"--kubeconfig", kubeconfig}, args...)...)
		out, err := cmd.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		g.Expect(string(out)).NotTo(ContainSubstring("Warning"))
	}
	// No controller makes it here.
	g.Expect(e.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "default"}})).To(Succeed())
}

// runManager builds and runs nova-control-plane until the test ends.
func runManager(t *testing.T, kubeconfig string) {
	t.Helper()
	g := NewWithT(t)
	binary := filepath.Join(t.TempDir(), "nova-control-plane")
	g.Expect(tools.Build(t.Context(), binary, "", "./cmd/nova-control-plane")).To(Succeed())
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	g.Expect(err).NotTo(HaveOccurred())
	manager := exec.CommandContext(t.Context(), binary, "--kubeconfig="+kubeconfig, "--leader-elect", "--leader-elect-namespace=default",
		"--health-addr=127.0.0.1:0", "--diagnostics-address="+address, "--allow-endpoints=127.0.0.0/8")
	manager.Stdout, manager.Stderr = log, log
	g.Expect(manager.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = manager.Wait() // the test's context has ended it
		if t.Failed() {
			output, _ := os.ReadFile(log.Name())
			t.Logf("Output of the manager:\n%s", output)
		}
		_ = log.Close()
	})
}

// mayRead checks which paths an account may get.
func mayRead(t *testing.T, e *env.Env, user string, paths map[string]bool) {
	t.Helper()
	g := NewWithT(t)
	for path, may := range paths {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		}}
		g.Expect(e.Client.Create(t.Context(), review)).To(Succeed())
		g.Expect(review.Status.Allowed).To(Equal(may), path)
	}
}

// tokenOf returns a token of a service account.
func tokenOf(t *testing.T, e *env.Env, namespace, name string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	NewWithT(t).Expect(e.Client.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

// scrape requests the metrics as Prometheus does.
func scrape(ctx context.Context, g Gomega, token string) (status int, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	g.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", fmt.Sprint("Bearer ", token))
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// The manager signs its certificate itself.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	response, err := client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(response.Body.Close()).To(Succeed()) }()
	content, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(content)
}
