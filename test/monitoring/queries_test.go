package monitoring

import (
	"bytes"
	"encoding/json"
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

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// isState reports whether kube-state-metrics exports a metric, and not a manager.
func isState(metric string) bool {
	return strings.HasPrefix(metric, "capi_") && !strings.HasPrefix(metric, "capi_cluster_cache_")
}

// checkQueries evaluates all queries of the dashboards with Prometheus' query
// engine, on the series of a real manager, on those of a real
// kube-state-metrics with the samples' configuration and permissions, and for
// the metrics of other managers on series with the documented labels and the
// words that managers use. Each selector has to select something: otherwise a
// misspelled label would look like a healthy fleet.
func checkQueries(t *testing.T, e *env.Env, token string) {
	t.Helper()
	g := NewWithT(t)
	createObjects(t, e)
	var series bytes.Buffer
	for _, family := range reconciled(t, token) {
		writeFamily(t, &series, family, "control-plane-nova")
	}
	docs, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "metrics.md"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, family := range states(t, e) {
		g.Expect(string(docs)).To(MatchRegexp("`"+family.GetName()+"[`{]"), "docs/metrics.md does not have it")
		writeFamily(t, &series, family, "monitoring/nova-kube-state-metrics")
	}
	writeDocumented(t, &series)
	file := filepath.Join(t.TempDir(), "series")
	g.Expect(os.WriteFile(file, series.Bytes(), 0o600)).To(Succeed())

	all := panels(t)
	where := slices.Sorted(maps.Keys(all))
	var in bytes.Buffer
	for _, at := range where {
		fmt.Fprintln(&in, strings.ReplaceAll(all[at], "\n", " "))
	}
	paths, err := tools.Paths(t.Context(), os.Stderr, "promquery")
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), paths["promquery"], file)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred())
	decoder := json.NewDecoder(bytes.NewReader(out))
	for _, at := range where {
		var answer struct {
			Error     string         `json:"error"`
			Results   int            `json:"results"`
			Selectors map[string]int `json:"selectors"`
		}
		g.Expect(decoder.Decode(&answer)).To(Succeed(), at)
		if answer.Error != "" || answer.Results == 0 {
			t.Errorf("%s: %d results: %s: %s", at, answer.Results, answer.Error, all[at])
		}
		if len(answer.Selectors) == 0 {
			t.Errorf("%s: no selector in %s", at, all[at])
		}
		for selector, n := range answer.Selectors {
			if n == 0 {
				t.Errorf("%s: %s selects nothing", at, selector)
			}
		}
	}
}

// reconciled returns the metrics of the manager once it has reconciled a
// control plane: its controllers have series only from then on.
func reconciled(t *testing.T, token string) map[string]*dto.MetricFamily {
	t.Helper()
	var families map[string]*dto.MetricFamily
	NewWithT(t).Eventually(func(g Gomega) {
		status, body := scrape(t.Context(), g, token)
		g.Expect(status).To(Equal(http.StatusOK))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		var err error
		families, err = parser.TextToMetricFamilies(strings.NewReader(body))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(body).To(ContainSubstring(`controller_runtime_reconcile_time_seconds_count{controller="novacontrolplane"}`))
	}, time.Minute, time.Second).Should(Succeed())
	return families
}

// createObjects creates the objects of testdata with their status.
func createObjects(t *testing.T, e *env.Env) {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("testdata", "objects.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
		status := o.Object["status"]
		delete(o.Object, "status")
		g.Expect(e.Client.Create(t.Context(), o)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
		if status == nil {
			continue
		}
		// A running manager may change the object meanwhile.
		g.Eventually(func() error {
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			o.Object["status"] = status
			return e.Client.Status().Update(t.Context(), o)
		}, time.Minute).Should(Succeed(), "%s %s", o.GetKind(), o.GetName())
	}
}

// states returns the metrics of kube-state-metrics, which runs with the service
// account of the samples.
func states(t *testing.T, e *env.Env) map[string]*dto.MetricFamily {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "kube-state-metrics")
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	account := clientcmdapi.NewConfig()
	account.Clusters["test"] = &clientcmdapi.Cluster{Server: e.Config.Host, CertificateAuthorityData: e.Config.CAData}
	account.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: tokenOf(t, e, "monitoring", "nova-kube-state-metrics")}
	account.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	account.CurrentContext = "test"
	g.Expect(clientcmd.WriteToFile(*account, kubeconfig)).To(Succeed())
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	g.Expect(err).NotTo(HaveOccurred())
	args := []string{
		"--kubeconfig=" + kubeconfig, "--host=127.0.0.1", fmt.Sprint("--port=", statePort), "--telemetry-host=127.0.0.1", fmt.Sprint("--telemetry-port=", statePort+1),
		"--custom-resource-state-only", "--custom-resource-state-config-file=" + sample("custom-resource-state.yaml"),
	}
	cmd := exec.CommandContext(t.Context(), paths["kube-state-metrics"], args...)
	cmd.Stdout, cmd.Stderr = log, log
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = cmd.Wait() // the test's context has ended it
		if t.Failed() {
			output, _ := os.ReadFile(log.Name())
			t.Logf("Output of kube-state-metrics:\n%s", output)
		}
		_ = log.Close()
	})
	var families map[string]*dto.MetricFamily
	g.Eventually(func(g Gomega) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", statePort), http.NoBody)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := http.DefaultClient.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err = parser.TextToMetricFamilies(strings.NewReader(onceTyped(string(body))))
		g.Expect(err).NotTo(HaveOccurred())
		for _, kind := range []string{"cluster", "machinedeployment", "machinepool", "machine", "novacontrolplane", "novacluster", "novamachine"} {
			g.Expect(families).To(HaveKey("capi_" + kind + "_info"))
			g.Expect(families["capi_"+kind+"_info"].GetMetric()).NotTo(BeEmpty())
		}
		g.Expect(families["capi_machinehealthcheck_status_current_healthy"].GetMetric()).NotTo(BeEmpty())
	}, 2*time.Minute, time.Second).Should(Succeed())
	return families
}

// statePort is below the ports that the kernel hands out.
const statePort = 21844

// onceTyped keeps the first type of a metric: kube-state-metrics writes it for
// each kind, which Prometheus accepts and this parser does not.
func onceTyped(text string) string {
	seen := map[string]bool{}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "#" {
			key := fields[1] + fields[2]
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		out.WriteString(line)
	}
	return out.String()
}

// writeFamily writes a metric with the labels that Prometheus adds.
func writeFamily(t *testing.T, to io.Writer, family *dto.MetricFamily, job string) {
	t.Helper()
	for _, m := range family.GetMetric() {
		for _, label := range [][2]string{{"job", job}, {"instance", "192.0.2.1:8443"}, {"pod", "a"}} {
			m.Label = append(m.Label, &dto.LabelPair{Name: &label[0], Value: &label[1]})
		}
	}
	_, err := expfmt.MetricFamilyToText(to, family)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

// histograms are the documented metrics with quantiles.
var histograms = []string{"nova_machine_provision_seconds", "nova_hypervisor_request_seconds"}

// writeDocumented writes series of the metrics in docs/metrics.md, which
// TestDocumentedMetricsAreExportedAsTheyAreDocumented compares with the
// managers.
func writeDocumented(t *testing.T, to io.Writer) {
	t.Helper()
	known := words(t)
	values := map[string][]string{
		"namespace": {"team"}, "name": {"blue"}, "cluster": {"blue"}, "control_plane": {"blue"}, "set": {"base"}, "server": {"vcenter.example.com"},
		"provider": {"vsphere"}, "method": {"CloneVM_Task"}, "code": {"", "200"}, "action": {"create"}, "result": {"success"}, "decision": {"approve"}, "how": {"Delete"},
	}
	kinds := map[string][]string{"nova_condition": {"Cluster", "NovaControlPlane", "NovaVSphereCluster", "NovaModuleSet"}, "nova_bootstrap_certificate_requests_total": {"join"}}
	kinds["nova_condition_transition_timestamp_seconds"] = kinds["nova_condition"]
	// Cluster API's cluster cache has series once it has tried to connect.
	const connected = "capi_cluster_cache_connection_up"
	exists, _ := registered(connected, documented{})
	NewWithT(t).Expect(exists).To(BeTrue())
	fmt.Fprintf(to, "%s{job=\"control-plane-nova\",cluster_namespace=\"team\",cluster_name=\"blue\"} 0\n", connected)
	for name, d := range inDocs(t) {
		lines := []string{""}
		for _, label := range d.labels {
			of := known[name+" "+label]
			switch {
			case of != nil:
			case label == "kind":
				if of = kinds[name]; of == nil {
					of = []string{"NovaVSphereMachine"}
				}
			default:
				of = values[label]
			}
			NewWithT(t).Expect(of).NotTo(BeEmpty(), "%s %s", name, label)
			var next []string
			for _, line := range lines {
				for _, value := range of {
					next = append(next, fmt.Sprintf("%s,%s=%q", line, label, value))
				}
			}
			lines = next
		}
		slices.Sort(lines)
		for _, line := range slices.Compact(lines) {
			line = `job="infrastructure-nova-vsphere",instance="192.0.2.2:8443",pod="b"` + line
			if slices.Contains(histograms, name) {
				fmt.Fprintf(to, "%[1]s_bucket{%[2]s,le=\"1\"} 1\n%[1]s_bucket{%[2]s,le=\"+Inf\"} 1\n%[1]s_sum{%[2]s} 1\n%[1]s_count{%[2]s} 1\n", name, line)
				continue
			}
			fmt.Fprintf(to, "%s{%s} %d\n", name, line, valueOf(name))
		}
	}
}

// valueOf is a value with which the expressions that compare it have a result.
func valueOf(metric string) int64 {
	if metric == "nova_control_plane_certificates_expire_timestamp_seconds" {
		return time.Now().Add(240 * time.Hour).Unix()
	}
	if strings.HasSuffix(metric, "_timestamp_seconds") {
		return time.Now().Add(-2 * time.Hour).Unix()
	}
	return 1
}
