// Command structure checks the structure of the product in two ways.
//
//	structure [-record]
//
// Links: the bootstrap, control plane and add-on managers work with every
// infrastructure provider, so they must not link the infrastructure API or a
// package of providers, not even through other packages. If they do, the chain
// of imports is printed. depguard sees direct imports only. Only a provider
// itself, its command and providers/registry import a package of the provider.
//
// Figures: a package should be readable from the top down, file by file, and a
// type should be readable in a few files. For each package, three figures are
// counted without tests and generated files:
//
//   - backward: pairs of files where the first calls the second and the second
//     calls the first, directly or through other files. If there are none, the
//     files can be sorted so that each calls only later files. Counted in
//     packages over 1,500 lines.
//   - scattered: types with methods in more than 6 files.
//   - deepest: 1 for a package over 3,000 lines.
//
// The goal is 0. allowed.tsv has the figures of the packages that have not
// reached it. The check fails if a figure is higher than the allowed one, and
// also if it is lower: then lower the allowed figure with -record, so that it
// cannot rise again. -record does not raise a figure.
//
// Calls are found by name: a call of a function of the package, or of a method
// whose name only one type of the package has. Function values are not counted.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const record = "hack/structure/allowed.tsv"

// roots are the folders with the product.
var roots = []string{"api", "bootstrap", "cmd", "controllers", "internal", "modules", "providers"}

func main() {
	write := flag.Bool("record", false, "lower the figures in "+record)
	flag.Parse()
	ok, err := run(context.Background(), *write, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reports whether the product has the required structure.
func run(ctx context.Context, write bool, out io.Writer) (bool, error) {
	imports, err := listImports(ctx)
	if err != nil {
		return false, err
	}
	problems := linkProblems(imports)

	measured, err := measure(roots)
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile(record)
	if err != nil {
		return false, fmt.Errorf("reading allowed figures: %w", err)
	}
	allowed, err := parse(text)
	if err != nil {
		return false, err
	}
	if write {
		allowed = lower(allowed, measured)
		if lowered := format(allowed); !bytes.Equal(lowered, text) {
			if err := os.WriteFile(record, lowered, 0o600); err != nil {
				return false, fmt.Errorf("writing allowed figures: %w", err)
			}
		}
	}
	problems = append(problems, compare(allowed, measured)...)
	if len(problems) > 0 {
		fmt.Fprintln(out, strings.Join(problems, "\n"))
	}
	var sum figures
	for _, f := range measured {
		sum.backward += f.backward
		sum.scattered += f.scattered
		sum.deepest += f.deepest
	}
	fmt.Fprintf(out, "structure: backward=%d scattered=%d deepest=%d\n", sum.backward, sum.scattered, sum.deepest)
	return len(problems) == 0, nil
}
