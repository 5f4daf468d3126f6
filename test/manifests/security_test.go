package manifests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

var (
	// testName matches the name of a test or fuzz function in code.
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	// specName matches the text of a spec, and the folder or file that it names.
	specName = regexp.MustCompile("\"([^\"]+)\" in `([^`]+)`")
)

// docs/security.md names the test beside each sentence. A test that was renamed
// or deleted leaves a sentence that nothing proves.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	functions, texts := testsOf(t)
	names, specs := testName.FindAllStringSubmatch(string(text), -1), specName.FindAllStringSubmatch(string(text), -1)
	if len(names) < 50 || len(specs) < 10 {
		t.Fatalf("docs/security.md names %d tests and %d specs", len(names), len(specs))
	}
	for _, name := range names {
		if !slices.Contains(functions, name[1]) {
			t.Errorf("docs/security.md names the test %s, which does not exist", name[1])
		}
	}
	for _, spec := range specs {
		if !slices.ContainsFunc(texts, func(s specText) bool { return strings.HasPrefix(s.file, spec[2]) && strings.HasPrefix(s.text, spec[1]) }) {
			t.Errorf("docs/security.md names the spec %q, which %s does not have", spec[1], spec[2])
		}
	}
}

// specText is a string in a file of tests.
type specText struct{ file, text string }

// testsOf returns all test functions of the module, and all strings in files of
// tests: the text of a spec is one of them.
func testsOf(t *testing.T) (functions []string, texts []specText) {
	t.Helper()
	err := filepath.WalkDir(tools.Root(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != tools.Root() {
			return fs.SkipDir
		}
		// The behaviors of drivers are in files without this suffix.
		behaviors := filepath.Base(filepath.Dir(path)) == "hypervisor" && filepath.Ext(path) == ".go"
		if !strings.HasSuffix(path, "_test.go") && !behaviors {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(tools.Root(), path)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				functions = append(functions, n.Name.Name)
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					texts = append(texts, specText{filepath.ToSlash(name), text})
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return functions, texts
}
