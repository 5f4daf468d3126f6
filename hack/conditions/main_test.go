package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// TestEveryReasonIsExplained reads the API as the page does: each reason belongs to a
// condition, and its comment has its cause and the next step.
func TestEveryReasonIsExplained(t *testing.T) {
	blocks, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := render(root, blocks); err != nil {
		t.Fatal(err)
	}
	reasons := 0
	for _, b := range blocks {
		reasons += len(b.reasons)
	}
	if reasons < 100 {
		t.Errorf("the API has %d reasons: has their form changed?", reasons)
	}
}

// TestAnchorsAreUnique: two reasons with the same anchor could not be linked.
func TestAnchorsAreUnique(t *testing.T) {
	blocks, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	page, err := render(root, blocks)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, match := range regexp.MustCompile(`<a id="([^"]*)">|(?m:^## (.*)$)`).FindAllStringSubmatch(page, -1) {
		id := cmp.Or(match[1], anchor(match[2]))
		if seen[id] && match[2] == "" {
			t.Errorf("the anchor %s exists twice", id)
		}
		seen[id] = true
	}
}

func TestReadBlock(t *testing.T) {
	known := map[string]string{"ReadyCondition": "Ready"}
	for _, test := range []struct{ name, source, want string }{
		{"complete", `
// NovaConfig's Ready condition and corresponding reasons.
const (
	// ReadyCondition is true.
	ReadyCondition = clusterv1.ReadyCondition

	// DoneReason: it is done.
	//
	// Action: none.
	DoneReason = "Done"
)`, ""},
		{"no block comment", `
const (
	// DoneReason: it is done.
	//
	// Action: none.
	DoneReason = "Done"
)`, "does not name the condition"},
		{"no action", `
// NovaConfig's Ready condition and corresponding reasons.
const (
	// DoneReason: it is done.
	DoneReason = "Done"
)`, "no paragraph"},
		{"no comment", `
// NovaConfig's Ready condition and corresponding reasons.
const DoneReason = "Done"`, "has to begin with"},
		{"another condition", `
// NovaConfig's Ready condition and corresponding reasons.
const (
	// DoneCondition is true.
	DoneCondition = "Done"
)`, "which the comment of its block does not name"},
		{"unknown value", `
// NovaConfig's Ready condition and corresponding reasons.
const (
	// DoneCondition is true.
	DoneCondition = clusterv1.DoneCondition
)`, "neither a string nor a constant"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, err := parser.ParseFile(token.NewFileSet(), "", "package v1beta2\n"+test.source, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			b, err := readBlock(file.Decls[0].(*ast.GenDecl), known)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want == "" && (b.kinds[0] != "NovaConfig" || b.of[0] != "Ready" || b.reasons[0].doc != "it is done." || b.reasons[0].action != "none."):
				t.Errorf("read %+v", b)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestSummaryAndPolarity(t *testing.T) {
	for doc, want := range map[string][2]string{
		"XCondition is true. Ready depends on it.":                                                {"Ready", "True"},
		"XCondition is true. Ready of the Machine depends on it.":                                 {"Ready of the Machine", "True"},
		"XCondition is true. Ready does not depend on it.":                                        {"", "True"},
		"XCondition is true. It has negative polarity.":                                           {"", "False"},
		"XCondition is false while it is bad, and absent otherwise. Ready does not depend on it.": {"", "absent"},
		"XCondition is true. It is absent until the guest reports.":                               {"", "True"},
	} {
		c := constant{doc: doc}
		if got := [2]string{c.summary(), c.normal()}; got != want {
			t.Errorf("%s: got %v, want %v", doc, got, want)
		}
	}
}

// TestLinkFindsMissingHeadings: a comment that names a missing heading is an error.
func TestLinkFindsMissingHeadings(t *testing.T) {
	if page, err := link(root, "see docs/etcd.md#it-is-down."); err != nil || page != "see [It is down](../etcd.md#it-is-down)." {
		t.Errorf("got %q, %v", page, err)
	}
	for _, text := range []string{"see docs/etcd.md#no-such-heading.", "see docs/no-such-page.md."} {
		if page, err := link(root, text); err == nil {
			t.Errorf("%s: got %q and no error", text, page)
		}
	}
}

// TestControllersUseReasonsOfTheAPI: a reason in the code of the managers that is not a
// constant of the API would be missing on the page. Reasons of Cluster API are used only
// for the conditions of its Machines.
func TestControllersUseReasonsOfTheAPI(t *testing.T) {
	files := 0
	for _, folder := range []string{"controllers", "providers", "internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if name, _ := filepath.Rel(root, path); slices.Contains(sources, filepath.ToSlash(filepath.Dir(name))) {
				return nil
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, problem := range foreignReasons(file) {
				t.Errorf("%s: %s", path, problem)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 200 {
		t.Errorf("only %d files were read", files)
	}
}

func TestForeignReasons(t *testing.T) {
	for code, want := range map[string]bool{
		`var c = metav1.Condition{Reason: "Broken"}`:                              true,
		`var e = &hypervisor.Error{Reason: "Broken"}`:                             true,
		`func f() { c.Reason = "Broken" }`:                                        true,
		`func f() { c.Status, c.Reason = metav1.ConditionTrue, "Broken" }`:        true,
		`func f() { c.Reason, c.Message = clusterv1.ReadyReason, "" }`:            true,
		`const brokenReason = "Broken"`:                                           true,
		`func f() { return failure("Broken", "no %s", x) }`:                       true,
		`func f() { d.reason, d.message = "Broken", "" }`:                         true,
		`func f() { r.warn(s, "Broken", "Action", err) }`:                         true,
		`func f() { r.event(s, corev1.EventTypeWarning, "Broken", "a text") }`:    true,
		`func f() { r.event(s, corev1.EventTypeNormal, "Created", "a text") }`:    false,
		`func f() { c.Reason = infrav1.BrokenReason }`:                            false,
		`func f() { c.Reason = clusterv1.MachineUpToDateReason }`:                 false,
		`func f() { d.Reason = "The control plane matches its spec" }`:            false,
		`func f() { c := metav1.Condition{Reason: reason, Message: "Any text"} }`: false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(foreignReasons(file)) > 0; got != want {
			t.Errorf("%s: got %v, want %v", code, got, want)
		}
	}
}

// approved is the reason of the condition of a CertificateSigningRequest, which is not an
// object of the API.
const approved = "NovaMachine"

// camelCase matches a reason. Texts for people have spaces.
var camelCase = regexp.MustCompile(`^([A-Z][a-z0-9]*)+$`)

// foreignReasons returns the reasons of conditions in a file that are not constants of the
// API: strings, and constants of Cluster API and of the package itself.
func foreignReasons(file *ast.File) []string {
	var found []string
	check := func(where string, value ast.Expr) {
		if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, _ := strconv.Unquote(literal.Value); camelCase.MatchString(text) && text != approved {
				found = append(found, where+" "+literal.Value+" is not a constant of the API")
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "reason") {
				check("Reason:", n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if field, ok := left.(*ast.SelectorExpr); ok && len(n.Rhs) == len(n.Lhs) && strings.EqualFold(field.Sel.Name, "reason") {
					check(field.Sel.Name+" =", n.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) && strings.HasSuffix(name.Name, "Reason") {
					check(name.Name+" =", n.Values[i])
				}
			}
		case *ast.CallExpr:
			switch name := n.Fun.(type) {
			case *ast.Ident:
				if name.Name == "failure" && len(n.Args) > 0 {
					check("failure of", n.Args[0])
				}
			case *ast.SelectorExpr:
				if name.Sel.Name == "warn" && len(n.Args) > 1 {
					check("warning of", n.Args[1])
				}
				for i := range n.Args[:max(len(n.Args), 1)-1] {
					if kind, ok := n.Args[i].(*ast.SelectorExpr); ok && kind.Sel.Name == "EventTypeWarning" {
						check("event of", n.Args[i+1])
					}
				}
			}
		case *ast.SelectorExpr:
			if from, ok := n.X.(*ast.Ident); ok && from.Name == "clusterv1" &&
				strings.HasSuffix(n.Sel.Name, "Reason") && !strings.HasPrefix(n.Sel.Name, "Machine") {
				found = append(found, "clusterv1."+n.Sel.Name+" needs a constant of the API with its cause and next step")
			}
		}
		return true
	})
	return found
}
