package puppet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	revocation "github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
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

// catalogCode returns the HTTP status with which the server responds to a request for
// the catalog, or an error of curl.
func (n *node) catalogCode(ctx context.Context) string {
	GinkgoHelper()
	out, err := n.requestCatalog(ctx, "--output", filepath.Join(n.dir, "catalog"), "--write-out", "%{http_code}")
	if err != nil {
		return err.Error()
	}
	return out
}

// catalog returns the catalog that the server compiles for the node. Nothing is
// applied. The facts that the node reports claim another role.
func (n *node) catalog(ctx context.Context) *catalog {
	GinkgoHelper()
	out, err := n.requestCatalog(ctx, "--fail-with-body")
	Expect(err).NotTo(HaveOccurred(), out)
	c := &catalog{}
	Expect(json.Unmarshal([]byte(out), c)).To(Succeed(), out)
	return c
}

// requestCatalog requests the catalog of the node, and returns the output of curl.
func (n *node) requestCatalog(ctx context.Context, args ...string) (string, error) {
	return n.curl(ctx, "/puppet/v3/catalog/"+n.Certname+"?environment=production", append(args,
		"--header", "Accept: application/json", "--data", "environment=production", "--data", "facts_format=application/json",
		"--data-urlencode", fmt.Sprintf(`facts={"name": %q, "values": {"pp_role": "infra", "role": "infra"}}`, n.Certname))...)
}

// curl sends a request with the certificate of the node.
func (n *node) curl(ctx context.Context, path string, args ...string) (string, error) {
	ssl := filepath.Join(n.dir, "ssldir")
	command := exec.CommandContext(ctx, "curl", append(args, "--silent", "--show-error", "--max-time", "120",
		"--cacert", filepath.Join(ssl, "certs", "ca.pem"), "--cert", filepath.Join(ssl, "certs", n.Certname+".pem"), "--key", filepath.Join(ssl, "private_keys", n.Certname+".pem"),
		fmt.Sprintf("https://localhost:%d%s", puppet.Port, path))...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := inside(command.Run)
	return out.String(), err
}

// forward returns an address of this process that leads to the server: connections of
// an HTTP client are opened by other threads than the one in the network of the server.
func forward(ctx context.Context) string {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			var to net.Conn
			err = inside(func() (err error) {
				to, err = (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", puppet.Port))
				return err //nolint:wrapcheck // a test
			})
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, client); _ = to.Close() }()
			go func() { _, _ = io.Copy(client, to); _ = client.Close() }()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	return "localhost:" + port
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

	It("lose their certificate when nova-bootstrap revokes it", func(ctx context.Context) {
		certificate, key, err := server.Generate(ctx, puppet.Revoker)
		Expect(err).NotTo(HaveOccurred())
		authority, err := os.ReadFile(server.CA())
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{Data: map[string][]byte{"server": []byte(forward(ctx)), "ca.crt": authority, "tls.crt": certificate, "tls.key": key}}
		secret.Namespace, secret.Name = keySecret.Namespace, revocation.RevocationSecret
		// The certname is that of a Machine with this name and UID.
		owner := newNode("deleted.0d4f", "worker")
		out, code := owner.enroll(ctx)
		Expect(code).To(BeZero(), out)
		Expect(owner.catalogCode(ctx)).To(Equal("200"))

		deleted := metav1.Now()
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "deleted", UID: "0d4f", DeletionTimestamp: &deleted}}
		config := &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "deleted", DeletionTimestamp: &deleted, Finalizers: []string{bootstrapv1.PuppetFinalizer},
		}}
		c := fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(secret, config).Build()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		recorder := events.NewFakeRecorder(1)
		revoker := &revocation.Revoker{Client: c, Recorder: recorder, Namespace: secret.Namespace}
		result, err := revoker.Delete(ctx, config, machine, false)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.IsZero()).To(BeTrue())
		Expect(recorder.Events).To(Receive(ContainSubstring("PuppetCertificateRevoked")))
		Expect(server.Certificate(owner.Certname)).NotTo(BeAnExistingFile())
		Eventually(owner.catalogCode).WithContext(ctx).WithTimeout(time.Minute).ShouldNot(Equal("200"))

		By("letting the same credential sign nothing")
		Expect(os.WriteFile(filepath.Join(owner.dir, "ssldir", "certs", puppet.Revoker+".pem"), certificate, 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(owner.dir, "ssldir", "private_keys", puppet.Revoker+".pem"), key, 0o600)).To(Succeed())
		owner.Certname = puppet.Revoker
		sign, err := owner.curl(ctx, "/puppet-ca/v1/certificate_status/any", "--request", "PUT", "--header", "Content-Type: application/json",
			"--data", `{"desired_state": "signed"}`, "--output", filepath.Join(owner.dir, "status"), "--write-out", "%{http_code}")
		Expect(err).NotTo(HaveOccurred(), sign)
		Expect(sign).To(Equal("403"))
	})

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
