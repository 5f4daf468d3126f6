package boundedtemplate

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
)

// Limits of an execution.
const (
	// MaxOutput limits the output of a template, and each result of a function.
	MaxOutput = 1 << 20
	// maxText limits the text of all executions of a budget, including the
	// results of functions.
	maxText = 16 << 20
	// maxSteps limits the steps of all executions of a budget. A step is a node
	// of the parsed template.
	maxSteps = 250_000
)

// LimitError is returned for a template that exceeds a limit.
type LimitError struct{ problem string }

// Error implements error.
func (e *LimitError) Error() string { return "the template " + e.problem }

// Budget limits executions that belong together, such as all templates of one
// rendering. It is not safe for concurrent use.
type Budget struct{ steps, text int }

// NewBudget returns an unused budget.
func NewBudget() *Budget { return &Budget{} }

// step counts the nodes of one pass through a body.
func (b *Budget) step(nodes int) error {
	if b.steps += nodes; b.steps > maxSteps {
		return &LimitError{fmt.Sprintf("takes more than %d steps", maxSteps)}
	}
	return nil
}

// write counts text.
func (b *Budget) write(size int) error {
	if b.text += size; size > MaxOutput || b.text > maxText {
		return &LimitError{fmt.Sprintf("writes more than %d bytes", MaxOutput)}
	}
	return nil
}

// Template is a parsed template. It is not safe for concurrent use.
type Template struct{ parsed *template.Template }

// charge is the function that the package calls at the start of each body.
const charge = "charge"

// Parse parses a template. An unknown key fails the execution, instead of
// writing "<no value>".
func Parse(name, text string) (*Template, error) {
	t := template.New(name).Option("missingkey=error").Funcs((&functions{}).all())
	if _, err := t.Parse(text); err != nil {
		return nil, err
	}
	// Added after parsing, so that a template cannot use the function itself.
	t.Funcs(template.FuncMap{charge: func(int) (string, error) { return "", nil }})
	for _, defined := range t.Templates() {
		if defined.Tree == nil || defined.Root == nil {
			continue
		}
		weight, err := meter(defined.Root)
		if err != nil {
			return nil, err
		}
		if err := prepend(defined.Root, weight); err != nil {
			return nil, err
		}
	}
	return &Template{parsed: t}, nil
}

// Execute executes the template over data.
func (t *Template) Execute(data any, budget *Budget) (string, error) {
	f := &functions{budget: budget, parsed: t.parsed}
	t.parsed.Funcs(f.all())
	t.parsed.Funcs(template.FuncMap{charge: func(nodes int) (string, error) { return "", budget.step(nodes) }})
	out := &writer{budget: budget}
	if err := t.parsed.Execute(out, data); err != nil {
		// The position in the template does not matter for a limit.
		if limit := (*LimitError)(nil); errors.As(err, &limit) {
			return "", limit
		}
		return "", err
	}
	return out.text.String(), nil
}

// writer fails if more is written than the budget allows.
type writer struct {
	budget *Budget
	text   strings.Builder
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if err := w.budget.write(len(p)); err != nil {
		return 0, err
	}
	if w.text.Len()+len(p) > MaxOutput {
		return 0, &LimitError{fmt.Sprintf("writes more than %d bytes", MaxOutput)}
	}
	return w.text.Write(p)
}

// refused are the built-in functions whose results are much larger than their
// arguments, or that call functions in the data.
var refused = map[string]bool{"call": true, "html": true, "js": true, "urlquery": true}

// meterPipe is meter for the commands of a pipeline.
func meterPipe(n *parse.PipeNode) (int, error) {
	nodes := 1
	if n == nil {
		return nodes, nil
	}
	for _, command := range n.Cmds {
		more, err := sum(command.Args)
		if err != nil {
			return 0, err
		}
		nodes += more
	}
	return nodes, nil
}

// meter returns the number of nodes in one pass through a body, and adds
// charges to the bodies of its loops for each of their passes.
func meter(node parse.Node) (int, error) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return 0, nil
		}
		return sum(n.Nodes)
	case *parse.RangeNode:
		body, err := meter(n.List)
		if err != nil {
			return 0, err
		}
		if err := prepend(n.List, body); err != nil {
			return 0, err
		}
		return sum([]parse.Node{n.Pipe, n.ElseList})
	case *parse.IfNode:
		return sum([]parse.Node{n.Pipe, n.List, n.ElseList})
	case *parse.WithNode:
		return sum([]parse.Node{n.Pipe, n.List, n.ElseList})
	case *parse.TemplateNode:
		return meter(n.Pipe)
	case *parse.ActionNode:
		return meter(n.Pipe)
	case *parse.PipeNode:
		return meterPipe(n)
	case *parse.ChainNode:
		return meter(n.Node)
	case *parse.IdentifierNode:
		if refused[n.Ident] {
			return 0, fmt.Errorf("template: the function %s is not available", n.Ident)
		}
	}
	return 1, nil
}

func sum(nodes []parse.Node) (int, error) {
	total := 1
	for _, node := range nodes {
		n, err := meter(node)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// prepend adds a charge for its nodes at the start of a body.
func prepend(body *parse.ListNode, nodes int) error {
	call, err := template.New("").Funcs(template.FuncMap{charge: func(int) string { return "" }}).
		Parse(fmt.Sprintf("{{ %s %d }}", charge, nodes+1))
	if err != nil {
		return fmt.Errorf("counting steps: %w", err)
	}
	body.Nodes = append([]parse.Node{call.Root.Nodes[0]}, body.Nodes...)
	return nil
}
