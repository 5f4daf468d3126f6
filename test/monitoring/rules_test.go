package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// runbooks is the prefix of the links in alerts; a path in this repository
// follows it.
const runbooks = "https://github.com/nova-platform/cluster-api-provider-nova/blob/main/"

// rule is an alert as Prometheus reads it.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// groups are the content of a file of rules.
type groups struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

// sample is a path in config/monitoring.
func sample(path ...string) string {
	return filepath.Join(append([]string{tools.Root(), "config", "monitoring"}, path...)...)
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	g := NewWithT(t)
	data, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.UnmarshalStrict(data, into)).To(Succeed(), path)
}

// alerts returns all rules.
func alerts(t *testing.T) []rule {
	t.Helper()
	var file groups
	read(t, sample("rules.yaml"), &file)
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	NewWithT(t).Expect(all).NotTo(BeEmpty())
	return all
}

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "promtool")
	g.Expect(err).NotTo(HaveOccurred())
	out, err := exec.CommandContext(t.Context(), paths["promtool"], args...).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
}

func TestPrometheusTakesTheFiles(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", sample("rules.yaml"))
	promtool(t, "check", "config", "--syntax-only", sample("scrape.yaml"))
}

// Prometheus sends its token to the managers' namespaces only, and none that the
// API server accepts.
func TestScrapingSendsItsTokenToManagersOnly(t *testing.T) {
	g := NewWithT(t)
	var config struct {
		Jobs []struct {
			Authorization struct {
				File string `json:"credentials_file"`
			} `json:"authorization"`
			Discoveries []struct {
				Namespaces struct {
					Names []string `json:"names"`
				} `json:"namespaces"`
			} `json:"kubernetes_sd_configs"`
		} `json:"scrape_configs"`
	}
	// The rest of both files is Prometheus' and its operator's.
	data, err := os.ReadFile(sample("scrape.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(data, &config)).To(Succeed())
	data, err = os.ReadFile(sample("podmonitor.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	monitors := strings.Split(string(data), "\n---\n")
	g.Expect(config.Jobs).To(HaveLen(2), "the managers, and the fleet page")
	g.Expect(monitors).To(HaveLen(len(config.Jobs)))
	for i, job := range config.Jobs {
		var monitor struct {
			Spec struct {
				Namespaces struct {
					Names []string `json:"matchNames"`
				} `json:"namespaceSelector"`
			} `json:"spec"`
		}
		g.Expect(yaml.Unmarshal([]byte(monitors[i]), &monitor)).To(Succeed())
		g.Expect(job.Discoveries).To(HaveLen(1))
		g.Expect(job.Discoveries[0].Namespaces.Names).NotTo(BeEmpty())
		g.Expect(job.Discoveries[0].Namespaces.Names).To(ConsistOf(monitor.Spec.Namespaces.Names))
		g.Expect(job.Authorization.File).NotTo(HavePrefix("/var/run/secrets/kubernetes.io/"))
	}
}

func TestAlertsGoOffWhenTheyShould(t *testing.T) {
	promtool(t, "test", "rules", sample("tests", "alerts.yaml"))
}

// Every alert is seen to go off and to keep quiet.
func TestEveryAlertIsTested(t *testing.T) {
	g := NewWithT(t)
	var file struct {
		RuleFiles          []string `json:"rule_files"`
		EvaluationInterval string   `json:"evaluation_interval"`
		Tests              []struct {
			Name     string `json:"name"`
			Interval string `json:"interval"`
			Series   []any  `json:"input_series"`
			Rules    []struct {
				Time   string `json:"eval_time"`
				Alert  string `json:"alertname"`
				Alerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	read(t, sample("tests", "alerts.yaml"), &file)
	loud, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, rule := range test.Rules {
			if len(rule.Alerts) > 0 {
				loud[rule.Alert] = true
			}
			// Some of the series are well when others are not.
			if len(rule.Alerts) < len(test.Series) {
				quiet[rule.Alert] = true
			}
		}
	}
	for _, alert := range alerts(t) {
		g.Expect(loud).To(HaveKey(alert.Alert), "no test sees it go off")
		g.Expect(quiet).To(HaveKey(alert.Alert), "no test sees it keep quiet")
	}
}

func TestAlertsSayWhatToDo(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]bool{}
	for _, alert := range alerts(t) {
		g.Expect(seen).NotTo(HaveKey(alert.Alert))
		seen[alert.Alert] = true
		g.Expect([]string{"critical", "warning", "info"}).To(ContainElement(alert.Labels["severity"]), alert.Alert)
		g.Expect(alert.Annotations["summary"]).NotTo(BeEmpty(), alert.Alert)
		g.Expect(alert.Annotations["description"]).To(HaveSuffix("."), alert.Alert)
		link := alert.Annotations["runbook_url"]
		g.Expect(link).To(HavePrefix(runbooks), alert.Alert)
		path, anchor, found := strings.Cut(strings.TrimPrefix(link, runbooks), "#")
		g.Expect(found).To(BeTrue(), alert.Alert)
		g.Expect(headings(t, path)).To(ContainElement(anchor), "%s points at a heading that does not exist", alert.Alert)
	}
	for _, heading := range headings(t, "docs/alerts.md") {
		if strings.HasPrefix(heading, "nova") {
			g.Expect(slices.ContainsFunc(alerts(t), func(a rule) bool { return strings.EqualFold(a.Alert, heading) })).
				To(BeTrue(), "docs/alerts.md explains %s, which does not exist", heading)
		}
	}
}

// headings are the anchors of the headings of a document.
func headings(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tools.Root(), filepath.FromSlash(path)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(match[1]), "")
		found = append(found, strings.ReplaceAll(plain, " ", "-"))
	}
	return found
}

// The operator's rules are the plain file.
func TestPrometheusRuleIsTheFile(t *testing.T) {
	g := NewWithT(t)
	var plain groups
	var object struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       groups            `json:"spec"`
	}
	read(t, sample("rules.yaml"), &plain)
	read(t, sample("prometheusrule.yaml"), &object)
	g.Expect(object.Spec).To(Equal(plain), "run make generate")
}
