// Command testcount counts the tests in the output of "go test -json" and ends
// with one line, "N passed, N failed".
//
//	testcount [-checks FILE] [-table FILE] FILE...
//
// A Ginkgo suite is one test to Go; its specs are counted instead. Of a test
// with subtests only the subtests count. A test that was skipped, a spec that
// is pending and a package that did not compile count as failed: none of them
// showed that anything works. A test that failed and passed when it was run
// again counts as passed; a line "flaky: PACKAGE TEST" names it, and the specs
// that failed. Each line of FILE of -checks, "pass" or "fail", counts as one
// more. -table writes the results of the packages as a table.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	checks := flag.String("checks", "", "file with a line \"pass\" or \"fail\" for each check")
	table := flag.String("table", "", "file for a table of the packages, in Markdown")
	flag.Parse()
	sum, err := run(*checks, *table, flag.Args(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testcount:", err)
		os.Exit(2)
	}
	if sum.failed > 0 || sum.passed == 0 {
		os.Exit(1)
	}
}

func run(checks, table string, files []string, out io.Writer) (count, error) {
	r := results{}
	for _, file := range files {
		if err := readFile(file, r.readEvents); err != nil {
			return count{}, err
		}
	}
	sum := r.sum(out)
	if table != "" {
		if err := os.WriteFile(table, r.table(), 0o600); err != nil {
			return count{}, fmt.Errorf("writing table: %w", err)
		}
	}
	if checks != "" {
		if err := readFile(checks, sum.readChecks); err != nil {
			return count{}, err
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", sum.passed, sum.failed)
	return sum, nil
}

func readFile(name string, read func(io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening results: %w", err)
	}
	err = read(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// count contains the numbers of passed and failed tests.
type count struct{ passed, failed int }

func (c *count) add(other count) {
	c.passed += other.passed
	c.failed += other.failed
}

func (c *count) readChecks(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if lines.Text() == "pass" {
			c.passed++
		} else {
			c.failed++
		}
	}
	return lines.Err()
}

// event is a line of "go test -json".
type event struct {
	Action, Package, Test, Output string
	// Elapsed is in seconds.
	Elapsed float64
}

// outcome is the known result of one test.
type outcome struct {
	action  string
	seconds float64
	// specs is set for a Ginkgo suite.
	specs *count
	// parent is a test with subtests.
	parent bool
	// failures are the names of the specs that failed in this run of the suite.
	failures []string
	// flaky is set if the test failed before this run.
	flaky bool
}

// start resets the previous run, except for its failure.
func (o *outcome) start() {
	if o.action == "fail" {
		o.flaky, o.action, o.specs = true, "", nil
	}
}

// output reads the number and names of specs from a line of a suite.
func (o *outcome) output(line string) {
	line = colors.ReplaceAllString(line, "")
	if found := failureLine.FindStringSubmatch(line); found != nil && !o.flaky {
		o.failures = append(o.failures, found[1])
	}
	if specs, ok := specs(line); ok {
		o.specs = &specs
	}
}

// results are outcomes by package and test; the package itself is the test
// without a name.
type results map[string]map[string]*outcome

func (r results) at(pkg, test string) *outcome {
	if r[pkg] == nil {
		r[pkg] = map[string]*outcome{}
	}
	if r[pkg][test] == nil {
		r[pkg][test] = &outcome{}
	}
	return r[pkg][test]
}

func (r results) readEvents(in io.Reader) error {
	decoder := json.NewDecoder(in)
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parsing event: %w", err)
		}
		r.take(e)
	}
}

func (r results) take(e event) {
	if e.Package == "" {
		return
	}
	switch e.Action {
	case "run":
		r.at(e.Package, e.Test).start()
		if parent := r.parentOf(e.Package, e.Test); parent != nil {
			parent.parent = true
		}
	case "pass", "fail", "skip":
		r.at(e.Package, e.Test).action, r.at(e.Package, e.Test).seconds = e.Action, e.Elapsed
	case "output":
		r.at(e.Package, e.Test).output(e.Output)
	}
}

// parentOf returns the test that contains a subtest, or nil. The names of
// subtests may contain slashes too.
func (r results) parentOf(pkg, test string) *outcome {
	for i := strings.LastIndex(test, "/"); i > 0; i = strings.LastIndex(test[:i], "/") {
		if parent := r[pkg][test[:i]]; parent != nil {
			return parent
		}
	}
	return nil
}

var (
	colors      = regexp.MustCompile("\x1b\\[[0-9;]*m")
	failureLine = regexp.MustCompile(`^\s*\[(?:FAIL|TIMEDOUT|PANICKED|INTERRUPTED)\] (.+?)\s*$`)
	specsLine   = regexp.MustCompile(`(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped`)
)

// specs parses the last line of a Ginkgo suite.
func specs(line string) (count, bool) {
	found := specsLine.FindStringSubmatch(line)
	if found == nil {
		return count{}, false
	}
	var numbers [4]int
	for i := range numbers {
		n, err := strconv.Atoi(found[i+1])
		if err != nil {
			return count{}, false
		}
		numbers[i] = n
	}
	return count{passed: numbers[0], failed: numbers[1] + numbers[2] + numbers[3]}, true
}

// sum counts the tests, and prints the names of failed tests to out.
func (r results) sum(out io.Writer) count {
	var total count
	for _, pkg := range sortedKeys(r) {
		total.add(r.sumOf(pkg, out))
	}
	return total
}

// sumOf counts the tests of a package.
func (r results) sumOf(pkg string, out io.Writer) count {
	var here count
	for _, test := range sortedKeys(r[pkg]) {
		c := r[pkg][test].count(test)
		if o := r[pkg][test]; o.flaky && o.action == "pass" && test != "" {
			fmt.Fprintf(out, "flaky: %s\n", strings.Join(append([]string{pkg, test}, o.failures...), " "))
		}
		if r[pkg][test].parent && r.failedBelow(pkg, test) {
			c = count{}
		}
		if c.failed > 0 {
			fmt.Fprintf(out, "%s: %s %s (%d)\n", verb(r[pkg][test].action), pkg, test, c.failed)
		}
		here.add(c)
	}
	// A panic outside a test or a broken build belongs to no test.
	if r[pkg][""] != nil && r[pkg][""].action == "fail" && here.failed == 0 {
		fmt.Fprintf(out, "failed: %s\n", pkg)
		here.failed++
	}
	return here
}

// table has a row for each package with tests.
func (r results) table() []byte {
	var rows bytes.Buffer
	rows.WriteString("| package | passed | failed | seconds |\n|---|---|---|---|\n")
	for _, pkg := range sortedKeys(r) {
		c := r.sumOf(pkg, io.Discard)
		if c == (count{}) {
			continue
		}
		var seconds float64
		if r[pkg][""] != nil {
			seconds = r[pkg][""].seconds
		}
		fmt.Fprintf(&rows, "| %s | %d | %d | %.0f |\n", pkg, c.passed, c.failed, seconds)
	}
	return rows.Bytes()
}

func (o *outcome) count(test string) count {
	switch {
	case test == "":
		return count{}
	case o.specs != nil:
		c := *o.specs
		// A failure outside all specs fails the suite, too.
		if o.action != "pass" && c.failed == 0 {
			c.failed = 1
		}
		return c
	case o.parent && o.action == "pass":
		return count{}
	case o.parent:
		// By itself, or its subtests were counted instead.
		return count{failed: 1}
	case o.action == "pass":
		return count{passed: 1}
	default:
		return count{failed: 1}
	}
}

// failedBelow reports whether a subtest failed, which then counts instead.
func (r results) failedBelow(pkg, test string) bool {
	for name, o := range r[pkg] {
		if strings.HasPrefix(name, test+"/") && o.action != "pass" {
			return true
		}
	}
	return false
}

func verb(action string) string {
	switch action {
	case "skip":
		return "skipped"
	case "":
		return "not ended"
	default:
		return "failed"
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
