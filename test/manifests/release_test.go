package manifests

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// smallTree writes a repository with the parts that hack/release.sh reads, and with programs that take a
// second to build. The script, the tools, and the packing of images are those of the project.
// hack/components.sh there runs the commands in DISTURB, in the middle of a release.
func smallTree(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	for name, content := range map[string]string{
		".gitignore":                  "/out/\n",
		"go.mod":                      "module example.com/nova\n\ngo 1.26.0\n",
		"cmd/nova-fleet/main.go":      "package main\n\nfunc main() {}\n",
		"cmd/nova-host-agent/main.go": "package main\n\nfunc main() {}\n",
		"cmd/nova-autosign/main.go":   "package main\n\nfunc main() {}\n",
		"hack/components.sh": `#!/bin/sh -eu
mkdir -p "$1/infrastructure-nova/$2"
echo 'kind: Metadata' >"$1/infrastructure-nova/$2/metadata.yaml"
echo 'providers: []' >"$1/clusterctl.yaml"
cd "$(dirname "$0")/.."
eval "${DISTURB:-}"
`,
		"hack/gitops.sh": "#!/bin/sh -eu\nmkdir -p \"$1\"\n",
		"hack/images.sh": "#!/bin/sh -eu\necho registry.example/nova/nova-fleet:v0.1.0\n",
		"config/nova-fleet/default/kustomization.yaml": "resources: [fleet.yaml]\n",
		"config/nova-fleet/default/fleet.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: fleet\n",
		"config/monitoring/alerts.yaml":                "groups: []\n",
		"config/monitoring/dashboards/fleet.json":      "{}\n",
		"modules/catalogue/sets/platform.yaml":         "modules: []\n",
		"CHANGELOG.md":                                 "# Changes\n",
	} {
		file := filepath.Join(dir, name)
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(file, []byte(content), 0o755)).To(Succeed())
	}
	for _, name := range []string{"release.sh", "ensure-go.sh"} {
		data, err := os.ReadFile(filepath.Join(tools.Root(), "hack", name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(filepath.Join(dir, "hack", name), data, 0o755)).To(Succeed())
	}
	g.Expect(os.Symlink(filepath.Join(tools.Root(), "hack", "tools"), filepath.Join(dir, "hack", "tools"))).To(Succeed())
	out, err := inTree(t, dir, "", "sh", "-euc", "git init -q; git add -A; "+commit+" first")
	g.Expect(err).NotTo(HaveOccurred(), out)
	return dir
}

// commit is the command of a commit, without the message.
const commit = "git -c user.name=a -c user.email=a@example.com -c commit.gpgsign=false commit -q --allow-empty -m"

// inTree runs a command in a folder.
func inTree(t *testing.T, dir, disturb, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "DISTURB="+disturb, "ARCH=amd64 arm64", "REGISTRY=registry.example/nova", "KEY=", "URL=")
	out, err := cmd.CombinedOutput()
	t.Logf("$ %s %v\n%s", program, args, out)
	return string(out), err
}

// The provenance names the commit, so a release must not contain files of two states of the work tree.
func TestAReleaseIsOfOneState(t *testing.T) {
	for _, tt := range []struct {
		name, disturb, dir string
		refused            string
	}{
		{name: "unchanged"},
		{name: "files of the release are no change", dir: "dist"},
		{name: "a changed file", disturb: "echo >>CHANGELOG.md", refused: `CHANGELOG\.md`},
		{name: "a deleted file", disturb: "rm cmd/nova-fleet/main.go", refused: `cmd/nova-fleet/main\.go`},
		{name: "a new file", disturb: "echo >cmd/nova-fleet/other.go", refused: `cmd/nova-fleet/other\.go`},
		{name: "an ignored file is no change", disturb: "echo >out/notes"},
		{name: "two changes", disturb: "echo >>CHANGELOG.md; rm go.mod", refused: `CHANGELOG\.md,go\.mod`},
		{name: "another commit", disturb: commit + " second", refused: "HEAD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			tree := smallTree(t)
			out := filepath.Join(tree, "out")
			g.Expect(os.MkdirAll(out, 0o755)).To(Succeed())
			if tt.dir != "" {
				out = filepath.Join(tree, tt.dir)
			}
			said, err := inTree(t, tree, tt.disturb, "hack/release.sh", out, "v0.1.0")
			if tt.refused == "" {
				g.Expect(err).NotTo(HaveOccurred(), said)
				g.Expect(filepath.Join(out, "SHA256SUMS")).To(BeAnExistingFile())
				return
			}
			g.Expect(err).To(HaveOccurred(), said)
			g.Expect(said).To(MatchRegexp(`release\.sh: the work tree changed during the build: %s\n`, tt.refused))
			g.Expect(filepath.Join(out, "SHA256SUMS")).NotTo(BeAnExistingFile(), "a folder without it has no release")
		})
	}
}

// A release is built on one architecture for all of them.
func TestAReleaseDescribesEachArchitecture(t *testing.T) {
	g := NewWithT(t)
	tree := smallTree(t)
	said, err := inTree(t, tree, "", "hack/release.sh", "out", "v0.1.0")
	g.Expect(err).NotTo(HaveOccurred(), said)
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		for program, file := range map[string]string{
			"nova-fleet": "bin/" + arch + "/nova-fleet", "nova-host-agent": "host-agent/nova-host-agent-linux-" + arch,
			"nova-autosign": "puppet/nova-autosign-linux-" + arch,
		} {
			executable, err := elf.Open(filepath.Join(tree, "out", file))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(executable.Machine).To(Equal(machine), file)
			g.Expect(executable.Close()).To(Succeed())
			sbom, err := os.ReadFile(filepath.Join(tree, "out", "sbom", program+"-"+arch+".cdx.json"))
			g.Expect(err).NotTo(HaveOccurred())
			found := regexp.MustCompile(`goarch=\w+`).FindAllString(string(sbom), -1)
			g.Expect(found).NotTo(BeEmpty(), file)
			g.Expect(found).To(HaveEach("goarch="+arch), file)
		}
	}
}
