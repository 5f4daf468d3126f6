package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action string
	Test   string
	Output string
}

// summary contains the results of the tests.
type summary struct {
	results map[string]string
	output  map[string][]string
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: testsum EVENTS")
	}
	file, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	s, err := read(file)
	if err != nil {
		return err
	}
	if len(s.results) == 0 {
		return errors.New("no test has run")
	}
	s.write(out)
	return nil
}

// read collects the events by test.
func read(r io.Reader) (summary, error) {
	s := summary{results: map[string]string{}, output: map[string][]string{}}
	decoder := json.NewDecoder(r)
	for {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return s, fmt.Errorf("reading events: %w", err)
		}
		name, _, sub := strings.Cut(e.Test, "/")
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		switch e.Action {
		case "output":
			s.output[name] = append(s.output[name], strings.TrimSpace(e.Output))
		case "run":
			if !sub {
				// A test that never ends has failed.
				s.results[name] = "fail"
			}
		case "pass", "fail", "skip":
			if !sub {
				s.results[name] = e.Action
			}
		}
	}
}

// write names those that did not pass, and counts.
func (s summary) write(out io.Writer) {
	counts := map[string]int{}
	names := make([]string, 0, len(s.results))
	for name, result := range s.results {
		counts[result]++
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if s.results[name] == "pass" {
			continue
		}
		fmt.Fprintf(out, "%s: %s: %s\n", s.results[name], name, s.why(name))
	}
	fmt.Fprintf(out, "total: passed=%d failed=%d skipped=%d\n", counts["pass"], counts["fail"], counts["skip"])
}

// why returns the message of a test, which the test prints before it cleans up.
func (s summary) why(name string) string {
	reason, own := "no message", false
	for _, line := range s.output[name] {
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") || strings.Contains(line, "Cleaning up") {
			continue
		}
		if strings.Contains(line, "_test.go:") {
			reason, own = line, true
		} else if !own {
			reason = line
		}
	}
	return reason
}
