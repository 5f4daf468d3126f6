package monitoring

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// constants returns the values of the string constants in folders whose names
// end in suffix.
func constants(t *testing.T, suffix string, dirs ...string) []string {
	t.Helper()
	g := NewWithT(t)
	var found []string
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files).NotTo(BeEmpty(), dir)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			g.Expect(err).NotTo(HaveOccurred())
			ast.Inspect(parsed, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && strings.HasSuffix(spec.Names[0].Name, suffix) {
					if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
						value, err := strconv.Unquote(literal.Value)
						g.Expect(err).NotTo(HaveOccurred())
						found = append(found, value)
					}
				}
				return true
			})
		}
	}
	return found
}

// words returns the values of labels by metric and label.
func words(t *testing.T) map[string][]string {
	t.Helper()
	core, err := tools.ModuleDir(t.Context(), "sigs.k8s.io/cluster-api/api")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	core = filepath.Join(core, "core", "v1beta2")
	api := func(group string) string { return filepath.Join(tools.Root(), "api", group, "v1beta2") }
	conditions := constants(t, "Condition", core, api("infrastructure"), api("controlplane"), api("addons"))
	conditions = append(conditions, constants(t, "ConditionType", filepath.Join(tools.Root(), "internal", "fence"))...)
	reasons := constants(t, "Reason", core, api("infrastructure"))
	return map[string][]string{
		"nova_condition condition":                                    conditions,
		"nova_condition_transition_timestamp_seconds condition":       conditions,
		"capi_machinedeployment_status_condition condition":           constants(t, "Condition", core),
		"capi_novacluster_status_condition condition":                 constants(t, "Condition", core, api("infrastructure")),
		"nova_machines state":                                         reasons,
		"nova_machines_longest_seconds state":                         reasons,
		"nova_machine_first_boots state":                              reasons,
		"nova_control_plane_replicas state":                           {"Desired", "Current", "Ready", "Available", "UpToDate"},
		"nova_control_plane_etcd_members state":                       {"Voting", "Answering", "Learner", "Foreign"},
		"nova_hypervisor_sessions state":                              {"Connecting", "Up", "Down"},
		"nova_hypervisor_requests_total result":                       {"success", "fault", "error"},
		"nova_creations state":                                        {"InFlight", "Queued"},
		"nova_modules_clusters state":                                 {"selected", "updated", "ready", "failed"},
		"nova_control_plane_certificates_expire_timestamp_seconds of": {"Machines", "Kubeconfig", "ClusterCA"},
	}
}

// An alert on a state or a condition that nothing has would never go off.
func TestExpressionsAskForWordsThatExist(t *testing.T) {
	g := NewWithT(t)
	known := words(t)
	all := expressions(t)
	where := slices.Sorted(maps.Keys(all))
	texts := make([]string, 0, len(where))
	for _, at := range where {
		texts = append(texts, all[at])
	}
	checked := 0
	for i, u := range parsed(t, texts) {
		for _, s := range u.Selectors {
			for _, m := range s.Matchers {
				words, ok := known[s.Metric+" "+m.Label]
				if !ok {
					continue
				}
				for word := range strings.SplitSeq(m.Value, "|") {
					checked++
					g.Expect(words).To(ContainElement(word), "%s uses a %s that does not exist", where[i], m.Label)
				}
			}
		}
	}
	g.Expect(checked).To(BeNumerically(">", 50))
}
