package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// followsZVirt runs the quick start on a simulated engine. TestQuickStart of
// providers/zvirt uses the user and the template that its commands create.
func followsZVirt(ctx SpecContext, repository string) {
	GinkgoHelper()
	engine, err := ovirtsim.Start(ctx, ovirtsim.Options{Users: []ovirtsim.UserSpec{{Name: "nova@internal", Account: true}}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(engine.Stop)
	q := prepareQuickStart(ctx, repository, "first-zvirt")
	Expect(os.Symlink(filepath.Join(tools.Root(), "hack"), filepath.Join(q.dir, "hack"))).To(Succeed())
	standIn(q.dir, "ssh", "", `echo "$1" > host; cat > password`)
	const image = "debian-13-kube-v1.36.3"
	Expect(os.WriteFile(filepath.Join(q.dir, "out", image+".qcow2"), []byte("QFI\xfb"), 0o600)).To(Succeed())
	address := strings.TrimSuffix(strings.TrimPrefix(engine.URL, "https://"), "/ovirt-engine/api")
	all := page("quickstart-zvirt.md", q.namespace, map[string]string{
		"ZVIRT_SERVER": address, "ZVIRT_ADMIN": ovirtsim.DefaultUsername + ":" + ovirtsim.DefaultPassword, "ZVIRT_STORAGE_DOMAIN": "data1",
	})
	use, change, found := strings.Cut(all, "kubectl -n "+q.namespace+" patch cluster demo")
	Expect(found).To(BeTrue())
	Expect(shell(ctx, q.dir, q.env, use)).To(Succeed())

	By("making the template")
	_, templates := engine.Do("GET", "/templates", "")
	Expect(templates).To(ContainSubstring("<name>" + image + "</name>"))

	By("making the Cluster")
	cluster := &clusterv1.Cluster{}
	Expect(server.Client.Get(ctx, client.ObjectKey{Namespace: q.namespace, Name: "demo"}, cluster)).To(Succeed())
	Expect(variable(cluster, "sshAuthorizedKey")).To(Equal(`"ssh-ed25519 AAAA ops"`))
	Expect(variable(cluster, "template")).To(ContainSubstring("debian-13-kube-"))
	var tls map[string]string
	Expect(json.Unmarshal([]byte(variable(cluster, "tls")), &tls)).To(Succeed())
	Expect(tls).To(Equal(map[string]string{"caBundle": engine.CABundle}))

	By("making the user's password")
	password, err := os.ReadFile(filepath.Join(q.dir, "password"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(password)).To(MatchRegexp(`^Nova-[0-9a-f]{14}$`))
	host, err := os.ReadFile(filepath.Join(q.dir, "host"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(host)).To(Equal("root@127.0.0.1\n"))

	By("changing the Cluster")
	Expect(shell(ctx, q.dir, q.env, "kubectl -n "+q.namespace+" patch cluster demo"+change)).To(Succeed())
}
