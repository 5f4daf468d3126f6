package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/modules/catalogue"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

// versions are the first and the last Kubernetes version of docs/support.md.
var versions = []string{"v1.35.4", "v1.37.0"}

func main() {
	charts := flag.String("charts", "", "the folder with unpacked charts")
	root := flag.String("root", "../../..", "the folder of this project")
	record := flag.Bool("record", false, "write the facts of the charts to the catalogue")
	site := flag.String("sites", "", "render for the sites only whose name contains this")
	only := flag.String("only", "", "report on this module only")
	flag.Parse()
	if *charts == "" {
		fmt.Fprintln(os.Stderr, "catalogue: set -charts (make catalogue CHARTS=FOLDER)")
		os.Exit(2)
	}
	failed, err := run(os.Stdout, options{charts: *charts, root: *root, site: *site, only: *only, record: *record})
	if err != nil {
		fmt.Fprintln(os.Stderr, "catalogue:", err)
		os.Exit(1)
	}
	if failed {
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	charts, root, site, only string
	record                   bool
}

// run checks the catalogue, and returns whether it has found a defect.
func run(out io.Writer, o options) (bool, error) {
	sets, err := readSets()
	if err != nil {
		return false, err
	}
	var contents []modules.Content
	count := 0
	for _, one := range sets {
		contents = append(contents, one.content)
		count += len(one.content.Modules)
	}
	facts, err := readFacts(o.root)
	if err != nil {
		return false, err
	}
	r := newRenderer(o.charts, o.root, facts.Values)
	report := &report{only: o.only, seen: map[string]bool{}}
	matrix := sites.Matrix(sites.Labels(contents...), versions...)
	images := newImages(facts)
	for _, name := range slices.Sorted(maps.Keys(matrix)) {
		if !strings.Contains(name, o.site) {
			continue
		}
		rendered, err := renderSite(r, matrix[name], sets, report)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		images.collect(matrix[name], rendered, report)
		checkReferences(rendered, facts, report)
	}
	switch {
	case r.count+len(r.missing) == 0:
		return false, fmt.Errorf("no site has %q in its name", o.site)
	case !o.record:
	case len(r.missing) > 0 || o.site != "":
		return false, errors.New("recording needs all charts and all sites, because all facts are replaced")
	default:
		if err := recordFacts(o.root, r, images); err != nil {
			return false, err
		}
	}
	unmirrored := images.check(report)
	report.print(out)
	if len(r.missing) > 0 {
		_, _ = fmt.Fprintf(out, "not rendered, because the folder has no such chart: %s\n", strings.Join(slices.Sorted(maps.Keys(r.missing)), ", "))
	}
	invalid := len(report.lines) - unmirrored
	_, _ = fmt.Fprintf(out, "catalogue: modules=%d rendered=%d images=%d unmirrored=%d invalid=%d\n", count, r.count, images.count(), unmirrored, invalid)
	return unmirrored+invalid+len(r.missing) > 0, nil
}

// set is a set of the catalogue.
type set struct {
	name      string
	dependsOn []string
	content   modules.Content
}

// readSets reads all sets, each after those that it depends on.
func readSets() ([]set, error) {
	var out []set
	var read func(name string) error
	read = func(name string) error {
		if slices.ContainsFunc(out, func(s set) bool { return s.name == name }) {
			return nil
		}
		spec, err := catalogue.Set(name)
		if err != nil {
			return fmt.Errorf("reading the catalogue: %w", err)
		}
		for _, other := range spec.Spec.DependsOn {
			if err := read(other); err != nil {
				return err
			}
		}
		manifest, err := catalogue.Manifest(name)
		if err != nil {
			return fmt.Errorf("reading the catalogue: %w", err)
		}
		content, err := sites.Content(manifest)
		if err != nil {
			return fmt.Errorf("reading the catalogue: %w", err)
		}
		out = append(out, set{name: name, dependsOn: spec.Spec.DependsOn, content: content})
		return nil
	}
	for _, name := range catalogue.Names() {
		if err := read(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// report contains each finding once.
type report struct {
	only  string
	seen  map[string]bool
	lines []string
}

// add adds a finding of a module and returns whether it is new.
func (r *report) add(module, format string, arguments ...any) bool {
	line := module + ": " + fmt.Sprintf(format, arguments...)
	if r.seen[line] || r.only != "" && r.only != module {
		return false
	}
	r.seen[line] = true
	r.lines = append(r.lines, line)
	return true
}

func (r *report) print(out io.Writer) {
	slices.Sort(r.lines)
	for _, line := range r.lines {
		_, _ = fmt.Fprintln(out, line)
	}
}
