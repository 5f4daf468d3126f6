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

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
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
	functions, err := os.ReadFile("../../hack/engine.sh")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(os.Mkdir(filepath.Join(dir, "hack"), 0o700)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(dir, "hack", "engine.sh"), functions, 0o600)).To(Succeed())
	b.Expect(os.Mkdir(filepath.Join(dir, "out"), 0o700)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(dir, "out", image+".qcow2"), []byte("QFI\xfb"), 0o600)).To(Succeed())

	var page strings.Builder
	page.WriteString("make() { true; }\n") // it would need the Internet
	for _, name := range []string{"quickstart-zvirt.md", "zvirt.md"} {
		guide, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		b.Expect(err).NotTo(HaveOccurred())
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
			if regexp.MustCompile(`(?m)^export ZVIRT_CA_BUNDLE|^role=|^make_template`).MatchString(block[1]) {
				page.WriteString(block[1])
			}
		}
	}
	site := strings.NewReplacer("engine.example.com", server(b.engine), "admin@internal:PASSWORD", ovirtsim.DefaultUsername+":"+ovirtsim.DefaultPassword,
		"ZVIRT_STORAGE_DOMAIN=data\n", "ZVIRT_STORAGE_DOMAIN=data1\n")
	run := func(options, script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", append(strings.Fields(options), "-c", script)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "NO_PROXY=*", "ZVIRT_SERVER="+server(b.engine), "ZVIRT_CLUSTER=Default",
			"ZVIRT_STORAGE_DOMAIN=data1", "ZVIRT_ADMIN="+ovirtsim.DefaultUsername+":"+ovirtsim.DefaultPassword)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("-euo pipefail", site.Replace(page.String())+`printf %b "$ZVIRT_CA_BUNDLE" >bundle.pem`)
	b.Expect(err).NotTo(HaveOccurred(), out)
	disks := strings.Count(b.admin("GET", "/disks", ""), "<disk ")
	for what, commands := range map[string]string{"image": "make_template missing", "storage domain": "ZVIRT_STORAGE_DOMAIN=none make_template " + image} {
		out, err = run("", "sleep() { echo waits; exit 1; }; . hack/engine.sh; "+commands)
		b.Expect(err).To(HaveOccurred(), "there is no such %s", what)
		b.Expect(out).NotTo(ContainSubstring("waits"), what)
	}
	b.Expect(strings.Count(b.admin("GET", "/disks", ""), "<disk ")).To(Equal(disks))
	b.Expect(b.admin("GET", "/templates", "")).NotTo(ContainSubstring("missing"))

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
	b.Expect(b.createAndDelete(b.machine("worker", fullMachine, func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Template.Name = image }), b.foreignDisk("pvc-1"))).To(Succeed())
}
