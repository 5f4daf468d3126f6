package manifests

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// TestFlagsAreDocumented compares the help text of each manager with the rows of
// docs/flags.md: each flag has a row with its default, and each row has a flag.
func TestFlagsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "flags.md"))
	if err != nil {
		t.Fatal(err)
	}
	common, others, found := strings.Cut(string(text), "## One manager")
	if !found {
		t.Fatal("docs/flags.md has no section for the flags of one manager")
	}
	documented := map[string]map[string]string{}
	for _, p := range Providers() {
		documented[p.Dir] = map[string]string{}
	}
	const effects = ` \| [^|]{10,} \| [^|]{5,} \|$`
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^|]+)"+effects).FindAllStringSubmatch(common, -1) {
		for _, flags := range documented {
			flags[row[1]] = row[2]
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^|]+) \\| ([^|]+)"+effects).FindAllStringSubmatch(others, -1) {
		for _, manager := range strings.Split(row[2], ", ") {
			documented[manager][row[1]] = row[3]
		}
	}
	for _, p := range Providers() {
		real := flagsOf(t, p.Dir)
		for _, name := range slices.Sorted(maps.Keys(real)) {
			if got, ok := documented[p.Dir][name]; !ok {
				t.Errorf("docs/flags.md has no row for --%s of %s", name, p.Dir)
			} else if got != real[name] {
				t.Errorf("docs/flags.md has the default %q for --%s of %s, want %q", got, name, p.Dir, real[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(documented[p.Dir])) {
			if _, ok := real[name]; !ok {
				t.Errorf("docs/flags.md has a row for --%s, which %s does not have", name, p.Dir)
			}
		}
	}
}

// flagsOf returns the flags of a manager by name, with their defaults in the
// form of docs/flags.md.
func flagsOf(t *testing.T, manager string) map[string]string {
	t.Helper()
	help := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", "./cmd/"+manager, "--help")
	help.Dir = tools.Root()
	// A default that comes from the environment of the pod.
	help.Env = append(os.Environ(), "POD_NAMESPACE=`POD_NAMESPACE`")
	out, err := help.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	flag := regexp.MustCompile(`^ +(?:-[a-z], )?--([a-z-]+)(?: ([A-Za-z]\S*))?  +\S.*`)
	value := regexp.MustCompile(`\(default "?(.*?)"?\)$`)
	flags, last := map[string]string{}, ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, " \n")
		if match := flag.FindStringSubmatch(line); match != nil {
			last = match[1]
			flags[last] = map[string]string{"": "false", "Level": "0"}[match[2]] // pflag prints no zero value
			flags[last] = cmp.Or(flags[last], "-")
		}
		if match := value.FindStringSubmatch(line); match != nil && match[1] != "[]" {
			flags[last] = strings.TrimSuffix(match[1], "m0s")
			if flags[last] != match[1] {
				flags[last] += "m"
			}
		}
	}
	if len(flags) < 20 {
		t.Fatalf("%s has %d flags only: %s", manager, len(flags), out)
	}
	return flags
}
