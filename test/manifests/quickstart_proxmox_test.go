package manifests

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// followsProxmox runs the quick start on a simulated Proxmox VE cluster. The programs
// of a node are not simulated: their arguments are recorded, and those that create the
// template are sent to the API, which has the same parameters.
func followsProxmox(ctx SpecContext, repository string) {
	GinkgoHelper()
	const storage, image, secret = "disks", "debian-13-kube-v1.36.3", "11111111-2222-3333-4444-555555555555"
	pve, err := pvesim.Start(ctx, pvesim.Options{Inventory: cluster.Inventory{
		Nodes:     []cluster.NodeSpec{{Name: "pve1"}},
		Storages:  []cluster.StorageSpec{{ID: storage, Type: "nfs", Content: []string{"images", "iso"}, Shared: true, SizeGiB: 100}},
		Templates: []cluster.TemplateSpec{{VMID: 8999, Name: "other", Node: "pve1", Storage: storage}},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(pve.Stop)
	q := prepareQuickStart(ctx, repository, "first-proxmox")
	Expect(os.WriteFile(filepath.Join(q.dir, "ca.pem"), []byte(pve.CABundle), 0o600)).To(Succeed())
	// The shell of the node runs the arguments as one text.
	standIn(q.dir, "ssh", "", `[ "$1" = root@127.0.0.1 ]; shift; text="$*"; exec bash -euc "${text//\/etc\/pve\/pve-root-ca.pem/$HOME/ca.pem}"`)
	standIn(q.dir, "scp", "", `echo "$*" >> copied`)
	standIn(q.dir, "qm", "", `echo "$*" >> qm`)
	standIn(q.dir, "pveum", "", `echo "$*" >> pveum
[[ "$*" != "user token add"* ]] || echo '{"full-tokenid":"nova@pve!capi","info":{"privsep":"0"},"value":"`+secret+`"}'`)
	all := page("quickstart-proxmox.md", q.namespace, map[string]string{
		"PROXMOX_SERVER": strings.TrimPrefix(pve.URLs[0], "https://"), "PROXMOX_STORAGE": storage,
	})
	use, change, found := strings.Cut(all, "kubectl -n "+q.namespace+" patch cluster demo")
	Expect(found).To(BeTrue())
	Expect(shell(ctx, q.dir, q.env, use)).To(Succeed())
	lines := func(name string) []string {
		GinkgoHelper()
		text, err := os.ReadFile(filepath.Join(q.dir, name))
		Expect(err).NotTo(HaveOccurred())
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}

	By("making the Cluster")
	demo := &clusterv1.Cluster{}
	Expect(server.Client.Get(ctx, client.ObjectKey{Namespace: q.namespace, Name: "demo"}, demo)).To(Succeed())
	Expect(variable(demo, "sshAuthorizedKey")).To(Equal(`"ssh-ed25519 AAAA ops"`))
	Expect(variable(demo, "template")).To(ContainSubstring("debian-13-kube-"))
	var tls map[string]string
	Expect(json.Unmarshal([]byte(variable(demo, "tls")), &tls)).To(Succeed())
	Expect(tls).To(Equal(map[string]string{"caBundle": pve.CABundle}))

	By("storing the token")
	made := &corev1.Secret{}
	Expect(server.Client.Get(ctx, client.ObjectKey{Namespace: q.namespace, Name: "proxmox-credentials"}, made)).To(Succeed())
	Expect(made.Data).To(Equal(map[string][]byte{"username": []byte("nova@pve!capi"), "password": []byte(secret)}))

	By("granting the privileges of the guide")
	guide, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "proxmox.md"))
	Expect(err).NotTo(HaveOccurred())
	granted := regexp.MustCompile(`(?m)^pveum role add NovaMachines --privs "(.*)"$`).FindSubmatch(guide)
	Expect(granted).To(HaveLen(2))
	Expect(lines("pveum")).To(Equal([]string{
		"user add nova@pve", "role add NovaMachines --privs " + string(granted[1]), "acl modify / --users nova@pve --roles NovaMachines",
		"user token add nova@pve capi --privsep 0 --output-format json",
	}))

	By("making the template")
	Expect(lines("copied")).To(Equal([]string{"out/" + image + ".qcow2 root@127.0.0.1:/var/tmp/"}))
	qm := lines("qm")
	Expect(qm).To(HaveLen(2))
	imported := storage + ":0,import-from=/var/tmp/" + image + ".qcow2"
	Expect(qm[0]).To(ContainSubstring("--scsi0 " + imported + ","))
	words := strings.Fields(strings.Replace(qm[0], imported, storage+":20", 1))
	params := map[string]any{"vmid": words[1]}
	for i := 2; i+1 < len(words); i += 2 {
		params[strings.TrimPrefix(words[i], "--")] = words[i+1]
	}
	_, err = pve.Do(ctx, http.MethodPost, "/nodes/pve1/qemu", params)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		_, err := pve.Do(ctx, http.MethodPost, "/nodes/pve1/qemu/"+strings.Fields(qm[1])[1]+"/template", nil)
		return err
	}).Should(Succeed())
	Eventually(pve.Cluster.VMs).Should(ContainElement(And(HaveField("Name", image), HaveField("Template", true))))

	By("changing the Cluster")
	Expect(shell(ctx, q.dir, q.env, "kubectl -n "+q.namespace+" patch cluster demo"+change)).To(Succeed())
}
