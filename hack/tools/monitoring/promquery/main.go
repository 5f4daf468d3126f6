// Command promquery reads PromQL expressions, one per line, evaluates each with
// Prometheus' query engine and writes a line of JSON for each: the number of
// results of the expression, and of each selector in it.
//
//	promquery FILE <expressions
//
// The series are those of FILE, in Prometheus' text format. They have a sample
// per minute in the last hour; counters and histograms grow.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

// answer is the output for an expression.
type answer struct {
	Error string `json:"error,omitempty"`
	// Results is the number of series in the result of the expression.
	Results int `json:"results"`
	// Selectors have the number of series that each selector selects.
	Selectors map[string]int `json:"selectors"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "promquery:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	if len(args) != 1 {
		return errors.New("name one file with series")
	}
	d, err := load(args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	parse := parser.NewParser(parser.Options{})
	for in.Scan() {
		found, err := d.evaluate(parse, in.Text())
		if err != nil {
			found.Error = err.Error()
		}
		if err := out.Encode(found); err != nil {
			return fmt.Errorf("writing answer: %w", err)
		}
	}
	return in.Err()
}

// evaluate counts the results of an expression and of each of its selectors.
func (d *data) evaluate(parse parser.Parser, text string) (answer, error) {
	found := answer{Selectors: map[string]int{}}
	expression, err := parse.ParseExpr(text)
	if err != nil {
		return found, err
	}
	if found.Results, err = d.count(text); err != nil {
		return found, err
	}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			found.Selectors[s.String()] = 0
		}
		return nil
	})
	for selector := range found.Selectors {
		if found.Selectors[selector], err = d.count(selector); err != nil {
			return found, err
		}
	}
	return found, nil
}
