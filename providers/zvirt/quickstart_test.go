package zvirt

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// The commands of the documents create the user, its roles and the template on
// the engine. They are sufficient for all steps of a machine.
func TestQuickStart(t *testing.T) {
	b := newBed(t, func(o *ovirtsim.Options) {
		o.Users = []ovirtsim.UserSpec{{Name: leastUser, Password: leastPassword, Account: true}}
	})
	const image = "debian-13-kube-v1.36.3"
	dir := t.TempDir()
	b.Expect(os.MkdirAll(filepath.Join(dir, ".ssh"), 0o700)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(dir, ".ssh", "id_ed25519.pub"), []byte("ssh-ed25519 AAAA"), 0o600)).To(Succeed())
	hack, err := filepath.Abs("../../hack")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(os.Symlink(hack, filepath.Join(dir, "hack"))).To(Succeed())
	b.Expect(os.Mkdir(filepath.Join(dir, "out"), 0o700)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(dir, "out", image+".qcow2"), []byte("QFI\xfb"), 0o600)).To(Succeed())

	script := "make() { true; }\n" // it would need virt-customize
	for _, name := range []string{"quickstart-zvirt.md", "zvirt.md"} {
		guide, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		b.Expect(err).NotTo(HaveOccurred())
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
			if regexp.MustCompile(`(?m)^export ZVIRT_CA_BUNDLE|^role=|^make_template`).MatchString(block[1]) {
				script += block[1]
			}
		}
	}
	site := strings.NewReplacer("engine.example.com", server(b.engine), "admin@internal:PASSWORD", ovirtsim.DefaultUsername+":"+ovirtsim.DefaultPassword,
		"ZVIRT_STORAGE_DOMAIN=data\n", "ZVIRT_STORAGE_DOMAIN=data1\n")
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", site.Replace(script)+`printf %b "$ZVIRT_CA_BUNDLE" >bundle.pem`)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "NO_PROXY=*")
	out, err := cmd.CombinedOutput()
	b.Expect(err).NotTo(HaveOccurred(), string(out))

	bundle, err := os.ReadFile(filepath.Join(dir, "bundle.pem"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(bundle)).To(Equal(b.engine.CABundle))
	b.Expect(b.admin("GET", "/vms", "")).NotTo(ContainSubstring(image), "the VM of the template is removed")

	var roles, permits ovirt.List
	b.Expect(xml.Unmarshal([]byte(b.admin("GET", "/roles", "")), &roles)).To(Succeed())
	role := slices.IndexFunc(roles.Items, func(o ovirt.Object) bool { return o.Name == "NovaMachines" })
	b.Expect(role).NotTo(BeNumerically("<", 0))
	b.Expect(xml.Unmarshal([]byte(b.admin("GET", "/roles/"+roles.Items[role].ID+"/permits", "")), &permits)).To(Succeed())
	names := []string{}
	for _, permit := range permits.Items {
		names = append(names, permit.Name)
	}
	b.Expect(names).To(ConsistOf(documentedPermissions(b.WithT)), "the role has the documented permits")

	b.loginAs(leastUser, leastPassword)
	b.addReferences()
	b.Expect(b.createAndDelete(b.machine("worker", fullMachine, func(m *infrav1.NovaZVirtMachine) { m.Spec.Template.Name = image }), b.foreignDisk("pvc-1"))).To(Succeed())
}
