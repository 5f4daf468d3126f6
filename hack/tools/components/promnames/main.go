// Command promnames reads PromQL expressions, one per line, and writes a line
// of JSON for each with the metrics and labels that it uses, or with its syntax
// error. A test compares the result with the metrics that managers export.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// selector is one selection of series in an expression.
type selector struct {
	Metric   string    `json:"metric"`
	Matchers []matcher `json:"matchers"`
}

// matcher is one label matcher of a selector.
type matcher struct {
	Label string `json:"label"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// uses are the metrics and labels of an expression.
type uses struct {
	Error     string     `json:"error,omitempty"`
	Selectors []selector `json:"selectors"`
	// Groupings are the labels of by, without, on, ignoring and group_left.
	Groupings []string `json:"groupings"`
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	parse := parser.NewParser(parser.Options{})
	for in.Scan() {
		if err := out.Encode(read(parse, in.Text())); err != nil {
			fail(err)
		}
	}
	if err := in.Err(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "promnames:", err)
	os.Exit(1)
}

// read returns the metrics and labels of an expression.
func read(parse parser.Parser, text string) uses {
	expr, err := parse.ParseExpr(text)
	if err != nil {
		return uses{Error: err.Error()}
	}
	var found uses
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			found.Selectors = append(found.Selectors, selection(n))
		case *parser.AggregateExpr:
			found.Groupings = append(found.Groupings, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				found.Groupings = append(found.Groupings, n.VectorMatching.MatchingLabels...)
				found.Groupings = append(found.Groupings, n.VectorMatching.Include...)
			}
		}
		return nil
	})
	slices.Sort(found.Groupings)
	found.Groupings = slices.Compact(found.Groupings)
	return found
}

func selection(n *parser.VectorSelector) selector {
	s := selector{Metric: n.Name}
	for _, m := range n.LabelMatchers {
		if m.Name != labels.MetricName {
			s.Matchers = append(s.Matchers, matcher{m.Name, m.Type.String(), m.Value})
		}
	}
	return s
}
