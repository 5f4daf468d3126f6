package modules

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"github.com/Masterminds/semver/v3"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// costLimit bounds what one expression may compute.
const costLimit = 1_000_000

// environment is what expressions may use. It is made once: it is costly, and
// safe for concurrent use.
var environment = func() *cel.Env {
	env, err := cel.NewEnv(
		cel.Variable("facts", cel.DynType),
		cel.CrossTypeNumericComparisons(true),
		ext.Strings(),
		ext.Sets(),
	)
	if err != nil {
		panic(err) // wrong for every input: a test of anything here finds it
	}
	return env
}()

// program compiles an expression.
func program(expression string) (cel.Program, error) {
	ast, issues := environment.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compiling %q: %s", expression, oneLine(issues.Err()))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("compiling %q: it must be true or false, and is of the type %s", expression, t)
	}
	p, err := environment.Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("compiling %q: %s", expression, oneLine(err))
	}
	return p, nil
}

// holds evaluates an expression over facts.
func holds(expression string, facts map[string]any) (bool, error) {
	p, err := program(expression)
	if err != nil {
		return false, err
	}
	result, _, err := p.Eval(map[string]any{"facts": facts})
	if err != nil {
		return false, fmt.Errorf("evaluating %q: %s", expression, oneLine(err))
	}
	value, ok := result.Value().(bool)
	if !ok {
		return false, fmt.Errorf("evaluating %q: it must be true or false, and is %v", expression, result.Value())
	}
	return value, nil
}

// functions are what templates may use beside the language's own.
var functions = template.FuncMap{
	"lower":   strings.ToLower,
	"upper":   strings.ToUpper,
	"replace": func(from, to, text string) string { return strings.ReplaceAll(text, from, to) },
	"join": func(separator string, items []any) string {
		var out []string
		for _, item := range items {
			out = append(out, fmt.Sprint(item))
		}
		return strings.Join(out, separator)
	},
	"default": func(otherwise, value any) any {
		if value == nil || value == "" || value == int64(0) || value == any(false) {
			return otherwise
		}
		return value
	},
	"quote":    func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
	"contains": func(part, text string) bool { return strings.Contains(text, part) },
	"checksum": checksum,
	"json": func(value any) (string, error) {
		data, err := json.Marshal(value)
		return string(data), err
	},
}

// checksum is a number for a text, from 1 to 2³¹-1, for what wants to see whether
// it changed: the serial number of a zone.
func checksum(text string) uint32 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint32(sum[:])>>1 | 1
}

// maxIncludes bounds how deep templates include each other. One that includes
// itself would take the process with it.
const maxIncludes = 16

// include returns the function that renders a defined template to text, so
// that a document of many lines can be quoted.
func include(t *template.Template) func(name string, data any) (string, error) {
	depth := 0
	return func(name string, data any) (string, error) {
		if depth++; depth > maxIncludes {
			return "", fmt.Errorf("%q is included too deep", name)
		}
		defer func() { depth-- }()
		var out strings.Builder
		err := t.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
}

// parsed parses a template. One that names a fact that does not exist fails
// when it is executed instead of writing "<no value>" into a manifest.
func parsed(text string) (*template.Template, error) {
	t := template.New("").Option("missingkey=error").Funcs(functions)
	t.Funcs(template.FuncMap{"include": include(t)})
	if _, err := t.Parse(text); err != nil {
		return nil, fmt.Errorf("parsing template: %s", strings.TrimPrefix(oneLine(err), "template: "))
	}
	return t, nil
}

// filled executes a template over facts.
func filled(text string, facts map[string]any) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := parsed(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]any{"facts": facts}); err != nil {
		return "", fmt.Errorf("executing template: %s", strings.TrimPrefix(oneLine(err), "template: "))
	}
	return out.String(), nil
}

// Fits reports whether a Kubernetes version is in a range. Pre-releases and
// vendors' suffixes count as the version they precede or follow.
func Fits(version, constraint string) (bool, error) {
	if constraint == "" {
		return true, nil
	}
	c, err := semver.NewConstraint(constraint)
	if err != nil {
		return false, fmt.Errorf("reading the range %q: %w", constraint, err)
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return false, fmt.Errorf("reading the version %q: %w", version, err)
	}
	return c.Check(semver.New(v.Major(), v.Minor(), v.Patch(), "", "")), nil
}

// oneLine makes a message of many lines fit a condition.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
