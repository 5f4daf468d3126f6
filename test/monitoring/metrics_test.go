package monitoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	// The packages of the managers register their metrics.
	_ "github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap"
	_ "github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	_ "github.com/nova-platform/cluster-api-provider-nova/controllers/cluster"
	_ "github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane"
	_ "github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/etcdbackup"
	_ "github.com/nova-platform/cluster-api-provider-nova/controllers/machine"
	_ "github.com/nova-platform/cluster-api-provider-nova/controllers/modules"
	_ "github.com/nova-platform/cluster-api-provider-nova/internal/fleet"
	_ "github.com/nova-platform/cluster-api-provider-nova/internal/manager"
	_ "github.com/nova-platform/cluster-api-provider-nova/internal/workload/access"
	_ "github.com/nova-platform/cluster-api-provider-nova/providers/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// documented is a line of the table in docs/metrics.md.
type documented struct {
	labels []string
	help   string
}

// inDocs returns the managers' own metrics in docs/metrics.md.
func inDocs(t *testing.T) map[string]documented {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "metrics.md"))
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]documented{}
	lines := regexp.MustCompile("(?m)^\\| `(nova_\\w+)(?:\\{([^}]*)\\})?` \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1)
	for _, line := range lines {
		d := documented{help: line[3]}
		if line[2] != "" {
			d.labels = strings.Split(line[2], ", ")
		}
		found[line[1]] = d
	}
	g.Expect(found).NotTo(BeEmpty())
	return found
}

// registered reports whether a metric is registered, optionally with these
// labels and this help text: the registry rejects another metric with the same
// name.
func registered(name string, d documented) (exists, same bool) {
	err := metrics.Registry.Register(described{prometheus.NewDesc(name, d.help, d.labels, nil)})
	if err == nil {
		metrics.Registry.Unregister(described{prometheus.NewDesc(name, d.help, d.labels, nil)})
		return false, false
	}
	var already prometheus.AlreadyRegisteredError
	return true, errors.As(err, &already) || strings.Contains(err.Error(), "already exists with the same fully-qualified name")
}

// described is a collector that has no metrics.
type described struct{ of *prometheus.Desc }

func (d described) Describe(to chan<- *prometheus.Desc) { to <- d.of }
func (d described) Collect(chan<- prometheus.Metric)    {}

func TestRegisteredTellsMetricsApart(t *testing.T) {
	g := NewWithT(t)
	exists, _ := registered("nova_no_such_metric", documented{})
	g.Expect(exists).To(BeFalse())
	exists, same := registered("nova_creations", documented{labels: []string{"server"}})
	g.Expect(exists).To(BeTrue())
	g.Expect(same).To(BeFalse())
}

func TestDocumentedMetricsAreExportedAsTheyAreDocumented(t *testing.T) {
	for name, d := range inDocs(t) {
		switch exists, same := registered(name, d); {
		case !exists:
			t.Errorf("docs/metrics.md has %s, which no manager exports", name)
		case !same:
			t.Errorf("the labels or the help of %s differ from docs/metrics.md", name)
		}
	}
}

// TestEveryMetricIsDocumented reads the sources: a metric that has never been
// used has no sample that could be gathered.
func TestEveryMetricIsDocumented(t *testing.T) {
	g := NewWithT(t)
	known := inDocs(t)
	pattern := regexp.MustCompile(`(?:Name: +|NewDesc\()"(nova_\w+)"`)
	n := 0
	for _, dir := range []string{"controllers", "internal", "providers"} {
		g.Expect(filepath.WalkDir(filepath.Join(tools.Root(), dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, match := range pattern.FindAllStringSubmatch(string(source), -1) {
				g.Expect(known).To(HaveKey(match[1]), "docs/metrics.md does not have it; it is in %s", path)
				n++
			}
			return err
		})).To(Succeed())
	}
	g.Expect(n).To(Equal(len(known)), "each is found once")
}

// uses is the output of promnames for an expression.
type uses struct {
	Error     string `json:"error"`
	Selectors []struct {
		Metric   string `json:"metric"`
		Matchers []struct {
			Label string `json:"label"`
			Type  string `json:"type"`
			Value string `json:"value"`
		} `json:"matchers"`
	} `json:"selectors"`
	Groupings []string `json:"groupings"`
}

// parsed lets Prometheus' own parser read expressions.
func parsed(t *testing.T, expressions []string) []uses {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "promnames")
	g.Expect(err).NotTo(HaveOccurred())
	var in bytes.Buffer
	for _, expression := range expressions {
		fmt.Fprintln(&in, strings.ReplaceAll(expression, "\n", " "))
	}
	cmd := exec.CommandContext(t.Context(), paths["promnames"])
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred())
	var all []uses
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var u uses
		g.Expect(decoder.Decode(&u)).To(Succeed())
		all = append(all, u)
	}
	g.Expect(all).To(HaveLen(len(expressions)))
	return all
}

// expressions are those of the alerts and of the dashboards, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := panels(t)
	for _, alert := range alerts(t) {
		all["alert "+alert.Alert] = alert.Expr
	}
	return all
}

// scraped are labels that Prometheus itself adds to samples, or that other
// programs than our managers set here: see the tests with real managers.
var scraped = []string{"job", "instance", "pod", "le"}

// suffixes are those of the series of a histogram.
var suffixes = regexp.MustCompile(`_(bucket|sum|count)$`)

// TestExpressionsUseWhatIsExported finds misspelt metrics and labels. Those of
// libraries are found in TestManagers.
func TestExpressionsUseWhatIsExported(t *testing.T) {
	known := inDocs(t)
	all := expressions(t)
	where := slices.Sorted(maps.Keys(all))
	texts := make([]string, 0, len(where))
	for _, at := range where {
		texts = append(texts, all[at])
	}
	for i, u := range parsed(t, texts) {
		if u.Error != "" {
			t.Errorf("%s: %s", where[i], u.Error)
			continue
		}
		labels := slices.Clone(scraped)
		for _, s := range u.Selectors {
			name := s.Metric
			if !strings.HasPrefix(name, "nova_") {
				// checkQueries checks those of kube-state-metrics.
				labels = append(labels, "name", "controller", "result", "code", "cluster_name", "cluster_namespace")
				if isState(name) {
					labels = append(labels, u.Groupings...)
				}
				continue
			}
			d, ok := known[name]
			if !ok {
				d, ok = known[suffixes.ReplaceAllString(name, "")]
			}
			if !ok {
				t.Errorf("%s: no manager exports %s", where[i], name)
			}
			labels = append(labels, d.labels...)
			for _, m := range s.Matchers {
				if !slices.Contains(append(d.labels, scraped...), m.Label) {
					t.Errorf("%s: %s has no label %s", where[i], name, m.Label)
				}
			}
		}
		for _, label := range u.Groupings {
			if !slices.Contains(labels, label) {
				t.Errorf("%s: nothing in it has the label %s", where[i], label)
			}
		}
	}
}
