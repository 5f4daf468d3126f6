package manifests

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// units are the durations that constants are made of.
var units = map[string]time.Duration{
	"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// TestTimeLimitsAreDocumented requires a row with the value for each constant of
// the product that is a time, and a constant for each row.
func TestTimeLimitsAreDocumented(t *testing.T) {
	want := map[string]time.Duration{}
	for _, folder := range []string{"api", "bootstrap", "controllers", "internal", "modules", "providers"} {
		maps.Copy(want, durationsIn(t, folder))
	}
	if len(want) < 80 {
		t.Fatalf("found %d constants only", len(want))
	}
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "time-limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z][a-z0-9/]*[.][A-Za-z0-9]+)` \\| ([^|]+) \\| [^|]{10,} \\|$").FindAllStringSubmatch(string(text), -1) {
		if _, twice := got[row[1]]; twice {
			t.Errorf("%s has two rows", row[1])
		}
		got[row[1]] = row[2]
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if row, ok := got[name]; !ok {
			t.Errorf("docs/time-limits.md has no row for %s: | `%s` | %s | the limit that it sets |", name, name, readable(want[name]))
		} else if row != readable(want[name]) {
			t.Errorf("docs/time-limits.md has %s = %s, the code has %s", name, row, readable(want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("docs/time-limits.md has a row for %s, which no constant has", name)
		}
	}
}

// durationsIn returns the constants of all packages below a folder that are times,
// by the folder and the name.
func durationsIn(t *testing.T, folder string) map[string]time.Duration {
	t.Helper()
	found := map[string]time.Duration{}
	err := filepath.WalkDir(filepath.Join(tools.Root(), folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(tools.Root(), path)
		if err != nil {
			return fmt.Errorf("naming %s: %w", path, err)
		}
		names, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil {
			return fmt.Errorf("listing %s: %w", path, err)
		}
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("parsing %s: %w", name, err)
			}
			files = append(files, file)
		}
		for name, value := range durationsOf(files) {
			found[below+"."+name] = value
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// durationsOf evaluates the constants in the files of a package that are times.
func durationsOf(files []*ast.File) map[string]time.Duration {
	all := map[string]ast.Expr{}
	for _, file := range files {
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, spec := range general.Specs {
				values, ok := spec.(*ast.ValueSpec)
				for i := range len(values.Values) {
					if ok && i < len(values.Names) {
						all[values.Names[i].Name] = values.Values[i]
					}
				}
			}
		}
	}
	durations := map[string]time.Duration{}
	for name, expression := range all {
		if value, isTime := evaluate(expression, all, 0); isTime {
			if nanoseconds, exact := constant.Int64Val(constant.ToInt(value)); exact {
				durations[name] = time.Duration(nanoseconds)
			}
		}
	}
	return durations
}

// evaluate computes an expression of numbers, constants of the package and units
// of time. isTime is true if a unit is part of it.
func evaluate(e ast.Expr, all map[string]ast.Expr, depth int) (value constant.Value, isTime bool) {
	if depth > 10 {
		return constant.MakeUnknown(), false
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.INT || e.Kind == token.FLOAT {
			return constant.MakeFromLiteral(e.Value, e.Kind, 0), false
		}
	case *ast.ParenExpr:
		return evaluate(e.X, all, depth+1)
	case *ast.Ident:
		if other, ok := all[e.Name]; ok {
			return evaluate(other, all, depth+1)
		}
	case *ast.SelectorExpr:
		if from, ok := e.X.(*ast.Ident); ok && from.Name == "time" && units[e.Sel.Name] > 0 {
			return constant.MakeInt64(int64(units[e.Sel.Name])), true
		}
	case *ast.BinaryExpr:
		x, left := evaluate(e.X, all, depth+1)
		y, right := evaluate(e.Y, all, depth+1)
		known := x.Kind() != constant.Unknown && y.Kind() != constant.Unknown
		if known && slices.Contains([]token.Token{token.ADD, token.SUB, token.MUL, token.QUO}, e.Op) {
			return constant.BinaryOp(x, e.Op, y), left || right
		}
	}
	return constant.MakeUnknown(), false
}

// readable writes a duration without units that are zero.
func readable(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}
