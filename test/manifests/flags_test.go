package manifests

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// documentsFlags compares the help text of each manager with the rows of
// docs/flags.md: each flag has a row with its default, and each row has a flag.
func documentsFlags(ctx context.Context, binaries string) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "flags.md"))
	Expect(err).NotTo(HaveOccurred())
	common, others, found := strings.Cut(string(text), "## One manager")
	Expect(found).To(BeTrue())
	documented := map[string]map[string]string{}
	for _, program := range programs() {
		documented[program] = map[string]string{}
	}
	const effects = ` \| [^|]{10,} \| [^|]{5,} \|$`
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^|]+)"+effects).FindAllStringSubmatch(common, -1) {
		for _, flags := range documented {
			flags[row[1]] = row[2]
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^|]+) \\| ([^|]+)"+effects).FindAllStringSubmatch(others, -1) {
		for manager := range strings.SplitSeq(row[2], ", ") {
			Expect(documented).To(HaveKey(manager), row[1])
			documented[manager][row[1]] = row[3]
		}
	}
	for _, program := range programs() {
		Expect(documented[program]).To(Equal(flagsOf(ctx, filepath.Join(binaries, program))), program)
	}
}

// programs are the programs with the flags of managers.
func programs() []string {
	names := []string{"nova-fleet"}
	for _, p := range Providers() {
		names = append(names, p.Dir)
	}
	return names
}

// flagsOf returns the flags of a manager by name, with their defaults in the
// form of docs/flags.md.
func flagsOf(ctx context.Context, binary string) map[string]string {
	GinkgoHelper()
	help := exec.CommandContext(ctx, binary, "--help")
	// A default that comes from the environment of the pod.
	help.Env = append(os.Environ(), "POD_NAMESPACE=`POD_NAMESPACE`")
	out, err := help.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
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
		if match := value.FindStringSubmatch(line); len(match) == 2 && match[1] != "[]" {
			flags[last] = strings.TrimSuffix(match[1], "m0s")
			if flags[last] != match[1] {
				flags[last] += "m"
			}
		}
	}
	Expect(flags).To(HaveKeyWithValue("concurrency", "10"), string(out))
	return flags
}
