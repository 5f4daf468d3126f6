// Command licenses checks the licenses of all modules that packages are built
// from.
//
//	licenses PACKAGE...
//
// Each module must have a license file in its root folder, and its text must be
// one of the licenses in allowed. The program prints each module that breaks
// this rule, and then one line with the number of modules for each license. It
// exits with 1 if a module breaks the rule.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the SPDX identifiers of licenses that permit distribution inside
// a program under Apache-2.0 without further duties than a notice, and MPL-2.0,
// whose duties end at its own files.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "Zlib"}

// covered is the share of a license file, in percent, that must be the text of
// known licenses. The rest are names and years of copyright holders.
const covered = 75

var fileName = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying)([.-].*)?$`)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(packages []string) error {
	modules, err := list(packages)
	if err != nil {
		return err
	}
	var errs []error
	counts := map[string]int{}
	for _, m := range modules {
		ids, err := identify(m.dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.path, err))
			continue
		}
		for _, id := range ids {
			counts[id]++
			if !slices.Contains(allowed, id) {
				errs = append(errs, fmt.Errorf("%s: license %s is not allowed", m.path, id))
			}
		}
	}
	fmt.Printf("licenses: modules=%d", len(modules))
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf(" %s=%d", id, counts[id])
	}
	fmt.Println()
	return errors.Join(errs...)
}

type module struct{ path, dir string }

// list returns the modules that the packages are built from, without the main
// module.
func list(packages []string) ([]module, error) {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}} {{.Dir}}{{end}}{{end}}`
	var out, stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, packages...)...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("listing dependencies: %w: %s", err, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	var modules []module
	for _, line := range slices.Compact(lines) {
		if path, dir, ok := strings.Cut(line, " "); ok {
			modules = append(modules, module{path, dir})
		}
	}
	return modules, nil
}

// identify returns the licenses in the files of a module's root folder.
func identify(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading module: %w", err)
	}
	ids := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() || !fileName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading license: %w", err)
		}
		found := licensecheck.Scan(text)
		if found.Percent < covered {
			return nil, fmt.Errorf("%s is a known license by %.0f%% only", e.Name(), found.Percent)
		}
		for _, match := range found.Match {
			if !match.IsURL {
				ids[match.ID] = true
			}
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("no license file")
	}
	return slices.Sorted(maps.Keys(ids)), nil
}
