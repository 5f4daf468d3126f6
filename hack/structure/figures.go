package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// figures are the figures of a package.
type figures struct {
	backward, scattered, deepest int
	// calls are the backward calls, types the scattered types.
	calls, types []string
}

const header = "# package\tbackward\tscattered\tdeepest\n"

// parse reads allowed figures.
func parse(text []byte) (map[string]figures, error) {
	allowed := map[string]figures{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		numbers := make([]int, 0, 3)
		for _, field := range fields[min(1, len(fields)):] {
			n, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", record, err)
			}
			numbers = append(numbers, n)
		}
		if len(numbers) != 3 {
			return nil, fmt.Errorf("reading %s: %q does not have the columns of %q", record, line, header)
		}
		allowed[fields[0]] = figures{backward: numbers[0], scattered: numbers[1], deepest: numbers[2]}
	}
	return allowed, nil
}

// format writes allowed figures without packages that have reached the goal.
func format(allowed map[string]figures) []byte {
	out := bytes.NewBufferString(header)
	for _, path := range slices.Sorted(maps.Keys(allowed)) {
		if f := allowed[path]; f.backward+f.scattered+f.deepest > 0 {
			fmt.Fprintf(out, "%s\t%d\t%d\t%d\n", path, f.backward, f.scattered, f.deepest)
		}
	}
	return out.Bytes()
}

// lower returns the allowed figures, no higher than the measured ones.
func lower(allowed, measured map[string]figures) map[string]figures {
	lowered := map[string]figures{}
	for path, a := range allowed {
		m := measured[path]
		lowered[path] = figures{
			backward: min(a.backward, m.backward), scattered: min(a.scattered, m.scattered), deepest: min(a.deepest, m.deepest),
		}
	}
	return lowered
}

// compare returns a message for each figure that is not the allowed one.
func compare(allowed, measured map[string]figures) (problems []string) {
	all := maps.Clone(allowed)
	maps.Copy(all, measured)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		a, m := allowed[path], measured[path]
		for _, figure := range []struct {
			name              string
			allowed, measured int
			details           string
		}{
			{"backward", a.backward, m.backward, ": " + strings.Join(m.calls, ", ")},
			{"scattered", a.scattered, m.scattered, ": " + strings.Join(m.types, ", ")},
			{"deepest", a.deepest, m.deepest, ""},
		} {
			switch cmp.Compare(figure.measured, figure.allowed) {
			case 1:
				problems = append(problems, fmt.Sprintf("%s: %s=%d, allowed is %d%s", path, figure.name, figure.measured, figure.allowed, figure.details))
			case -1:
				problems = append(problems, fmt.Sprintf("%s: %s=%d is better than the allowed %d: run \"go run ./hack/structure -record\" and commit %s",
					path, figure.name, figure.measured, figure.allowed, record))
			}
		}
	}
	return problems
}
