package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// sharing are packages of programs that a first "make quickstart" builds, by their folder.
var sharing = map[string][]string{
	"hack/tools/components": {"sigs.k8s.io/cluster-api/core", "sigs.k8s.io/cluster-api/cmd/clusterctl", "github.com/kube-vip/kube-vip"},
}

// Go compiles a package again if a package below it has another version, so one different version can
// double the time of a first "make quickstart".
func TestProgramsShareVersions(t *testing.T) {
	g := NewWithT(t)
	own := versionsOf(g, ".", "./cmd/...", "./test/cmd/novabed")
	for folder, packages := range sharing {
		compared := 0
		for path, version := range versionsOf(g, folder, packages...) {
			if own[path] == "" {
				continue
			}
			compared++
			if version != own[path] {
				t.Errorf("%s/go.mod: package %s is compiled twice, because its module has the version %s there, and %s in go.mod", folder, path, version, own[path])
			}
		}
		g.Expect(compared).To(BeNumerically(">", 100), folder)
	}
}

// versionsOf returns the versions of the modules of all packages that some packages require.
func versionsOf(g *WithT, folder string, packages ...string) map[string]string {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{$.ImportPath}} {{.Version}}{{end}}{{end}}"}, packages...)...)
	cmd.Dir, cmd.Env = filepath.Join(tools.Root(), folder), append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), folder)
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[path] = version
		}
	}
	return versions
}
