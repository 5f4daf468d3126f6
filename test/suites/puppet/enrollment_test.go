package puppet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/nova-platform/cluster-api-provider-nova/test/puppet"
)

// parallel calls a function for each node at the same time.
func parallel(nodes []*node, do func(*node)) {
	GinkgoHelper()
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(func() {
			defer GinkgoRecover()
			do(n)
		})
	}
	all.Wait()
}

// catalog is the part of a catalog that the specs read.
type catalog struct {
	Classes   []string `json:"classes"`
	Resources []struct {
		Type       string         `json:"type"`
		Title      string         `json:"title"`
		Parameters map[string]any `json:"parameters"`
	} `json:"resources"`
}

// file returns the content of a file in the catalog, or nothing.
func (c *catalog) file(path string) string {
	for _, r := range c.Resources {
		if content, is := r.Parameters["content"].(string); is && r.Type == "File" && r.Title == path {
			return content
		}
	}
	return ""
}

// catalog returns the catalog that the server compiles for the node. Nothing is
// applied. The facts that the node reports claim another role.
func (n *node) catalog(ctx context.Context) *catalog {
	GinkgoHelper()
	ssl := filepath.Join(n.dir, "ssldir")
	command := exec.CommandContext(ctx, "curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "120",
		"--cacert", filepath.Join(ssl, "certs", "ca.pem"), "--cert", filepath.Join(ssl, "certs", n.Certname+".pem"), "--key", filepath.Join(ssl, "private_keys", n.Certname+".pem"),
		"--header", "Accept: application/json", "--data", "environment=production", "--data", "facts_format=application/json",
		"--data-urlencode", fmt.Sprintf(`facts={"name": %q, "values": {"pp_role": "infra", "role": "infra"}}`, n.Certname),
		fmt.Sprintf("https://localhost:%d/puppet/v3/catalog/%s?environment=production", puppet.Port, n.Certname))
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	Expect(inside(command.Run)).To(Succeed(), "%s", &out)
	c := &catalog{}
	Expect(json.Unmarshal(out.Bytes(), c)).To(Succeed(), "%s", &out)
	return c
}

var _ = Describe("Nodes at a Puppet server", func() {
	It("get certificates at the same time, and the catalog of their role", func(ctx context.Context) {
		roles := []string{"control-plane", "infra", "ingress", "worker"}
		var nodes []*node
		for i := range 10 {
			nodes = append(nodes, newNode(fmt.Sprintf("blue-%d.0d4f", i), roles[i%len(roles)]))
		}
		parallel(nodes, func(n *node) {
			out, code := n.enroll(ctx)
			Expect(code).To(BeZero(), out)
			Expect(server.Certificate(n.Certname)).To(BeAnExistingFile())
		})
		parallel(nodes[:len(roles)], func(n *node) {
			c := n.catalog(ctx)
			Expect(c.Classes).To(ContainElements("profile::banner", "profile::journal", "profile::ssh"))
			var got []string
			for _, class := range c.Classes {
				if role, is := strings.CutPrefix(class, "role::"); is {
					got = append(got, role)
				}
			}
			Expect(got).To(Equal([]string{strings.ReplaceAll(n.Role, "-", "_")}))
			Expect(c.file("/etc/motd")).To(HavePrefix("Node of cluster team-a/blue, role " + n.Role + ".\n"))
			Expect(c.file("/etc/systemd/journald.conf.d/50-puppet.conf")).To(Equal("[Journal]\nSystemMaxUse=2G\n"))
			Expect(c.file("/etc/sysctl.d/80-puppet.conf")).To(Equal(map[string]string{
				"infra":   "vm.max_map_count = 262144\n",
				"ingress": "net.netfilter.nf_conntrack_max = 1048576\nnet.core.somaxconn = 65535\n",
			}[n.Role]))
		})
	})

	DescribeTable("get no certificate", func(ctx context.Context, reason string, change func(owner *node) *node) {
		owner := newNode("refused-"+strings.ToLower(strings.ReplaceAll(CurrentSpecReport().LeafNodeText, " ", "-")), "worker")
		n := change(owner)
		n.request(ctx)
		Eventually(log).Should(gbytes.Say("%s", reason))
		Expect(server.Certificate(n.Certname)).NotTo(BeAnExistingFile())

		By("giving it to the owner of the token nevertheless")
		out, code := owner.enroll(ctx)
		Expect(code).To(BeZero(), out)
	},
		Entry("without a token", "the request has no token", func(owner *node) *node {
			n := *owner
			n.token, n.dir = "", GinkgoT().TempDir()
			return &n
		}),
		Entry("for another role", `pp_role "control-plane", the token has "worker"`, func(owner *node) *node {
			n := *owner
			n.Role, n.dir = "control-plane", GinkgoT().TempDir()
			return &n
		}),
		Entry("for another name", "the token is for ", func(owner *node) *node {
			n := *owner
			n.Certname, n.dir = "blue-0.another", GinkgoT().TempDir()
			return &n
		}),
	)

	It("get no certificate with a token that was used", func(ctx context.Context) {
		owner := newNode("replayed.0d4f", "worker")
		out, code := owner.enroll(ctx)
		Expect(code).To(BeZero(), out)

		By("refusing it while the owner has its certificate")
		certificate, err := os.ReadFile(server.Certificate(owner.Certname))
		Expect(err).NotTo(HaveOccurred())
		thief := *owner
		thief.dir = GinkgoT().TempDir()
		thief.request(ctx)
		Eventually(log).Should(gbytes.Say("the token was used already, for another key"))
		Expect(os.ReadFile(server.Certificate(owner.Certname))).To(Equal(certificate))

		By("refusing it after the certificate was deleted, as for a Machine that was deleted")
		Expect(os.Remove(server.Certificate(owner.Certname))).To(Succeed())
		thief.request(ctx)
		Eventually(log).Should(gbytes.Say("the token was used already, for another key"))
		Expect(server.Certificate(owner.Certname)).NotTo(BeAnExistingFile())
	})
})
