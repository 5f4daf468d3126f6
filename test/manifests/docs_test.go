package manifests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

func TestGuideListsTheTemplatesVariables(t *testing.T) {
	templates, err := filepath.Glob(filepath.Join(tools.Root(), "templates", "nova-vsphere", "*.yaml"))
	if err != nil || len(templates) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	var used []string
	for _, template := range templates {
		used = append(used, found(t, template, regexp.MustCompile(`\$\{([A-Z_]+)`))...)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	listed := found(t, filepath.Join(tools.Root(), "docs", "vsphere.md"), regexp.MustCompile("`([A-Z]+(?:_[A-Z]+)+|NAMESPACE)`"))
	if diff := cmp.Diff(used, listed); diff != "" {
		t.Errorf("variables that the templates use (-) and docs/vsphere.md lists (+):\n%s", diff)
	}
}

// found returns what the only group of re matches in a file, each once.
func found(t *testing.T, file string, re *regexp.Regexp) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, match := range re.FindAllStringSubmatch(string(text), -1) {
		words = append(words, match[1])
	}
	slices.Sort(words)
	return slices.Compact(words)
}

func TestGuideExplainsEveryReason(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "vsphere.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"infrastructure", "bootstrap"} {
		reasons := reasonsIn(t, filepath.Join(tools.Root(), "api", group, "v1beta2"))
		if len(reasons) == 0 {
			t.Errorf("api/%s has no reasons: has their form changed?", group)
		}
		for _, reason := range reasons {
			if !regexp.MustCompile(`\b` + reason + `\b`).Match(guide) {
				t.Errorf("docs/vsphere.md does not say what to do about %s of api/%s", reason, group)
			}
		}
	}
}

// reasonsIn returns the values of the constants in dir whose names end in
// Reason and that Cluster API does not define.
func reasonsIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasSuffix(spec.Names[0].Name, "Reason") {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons = append(reasons, value)
			}
			return true
		})
	}
	return reasons
}
