package modules

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	"github.com/nova-platform/cluster-api-provider-nova/internal/boundedtemplate"
)

// costLimit limits the computation of one expression.
const costLimit = 1_000_000

// environment is the CEL environment of expressions. It is created once:
// creation is expensive, and it is safe for concurrent use.
var environment = func() *cel.Env {
	env, err := cel.NewEnv(
		cel.Variable("facts", cel.DynType),
		cel.CrossTypeNumericComparisons(true),
		ext.Strings(),
		ext.Sets(),
	)
	if err != nil {
		panic(err) // wrong for every input: any test finds it
	}
	return env
}()

// compile compiles an expression.
func compile(expression string) (cel.Program, error) {
	ast, issues := environment.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compiling %q: %s", expression, oneLine(issues.Err()))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("compiling %q: it must be a boolean, but has the type %s", expression, t)
	}
	p, err := environment.Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("compiling %q: %s", expression, oneLine(err))
	}
	return p, nil
}

// evaluate evaluates an expression over facts.
func evaluate(expression string, facts map[string]any) (bool, error) {
	p, err := compile(expression)
	if err != nil {
		return false, err
	}
	result, _, err := p.Eval(map[string]any{"facts": facts})
	if err != nil {
		return false, fmt.Errorf("evaluating %q: %s", expression, oneLine(err))
	}
	value, ok := result.Value().(bool)
	if !ok {
		return false, fmt.Errorf("evaluating %q: it must be a boolean, but is %v", expression, result.Value())
	}
	return value, nil
}

// parseTemplate parses a template. An unknown fact fails the execution instead of
// writing "<no value>" into a manifest.
func parseTemplate(text string) (*boundedtemplate.Template, error) {
	t, err := boundedtemplate.Parse("", text)
	if err != nil {
		return nil, fmt.Errorf("parsing template: %s", strings.TrimPrefix(oneLine(err), "template: "))
	}
	return t, nil
}

// executeTemplate executes a template over facts.
func (r *renderer) executeTemplate(text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := parseTemplate(text)
	if err != nil {
		return "", err
	}
	out, err := t.Execute(map[string]any{"facts": r.facts}, r.budget)
	if refused, ok := errors.AsType[*boundedtemplate.RefusedError](err); ok {
		return "", refused
	}
	if err != nil {
		return "", fmt.Errorf("executing template: %s", strings.TrimPrefix(oneLine(err), "template: "))
	}
	return out, nil
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

// oneLine joins the lines of a message for a condition.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
