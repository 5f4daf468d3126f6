package puppet

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/nova-platform/cluster-api-provider-nova/internal/enrollment"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// serverName is the name of the server, which nodes know by a line in /etc/hosts,
	// and bridge its address.
	serverName = "puppet.example.org"
	bridge     = "10.77.0.1"
	// tokenValidity is the validity of tokens.
	tokenValidity = time.Hour
	// agentTimeout limits a run of an agent, while others run too.
	agentTimeout = 10 * time.Minute
)

var (
	// b is the bed that all specs share.
	b      *bed.Bed
	server *puppet.Server
	// log is the log of the server.
	log *gbytes.Buffer
)

func TestPuppet(t *testing.T) {
	if os.Getenv("NOVA_SUITES") != "full" {
		return
	}
	harness.RunLong(t, "Puppet")
}

func inside(do func() error) error { return b.Inside(do) }

var _ = BeforeSuite(func(ctx context.Context) {
	log = gbytes.NewBuffer()
	b = harness.Start(ctx, bed.Options{Name: "puppet", Packages: []string{"puppet-agent", "openssh-server"}})
	dir := GinkgoT().TempDir()
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	var err error
	server, err = puppet.Start(ctx, puppet.Options{
		Dir: dir, IP: "0.0.0.0", Name: serverName, Inside: inside, Log: io.MultiWriter(log, GinkgoWriter),
		Environment: filepath.Join(tools.Root(), "templates", "configuration-manager"),
	})
	Expect(err).NotTo(HaveOccurred(), "%s", log.Contents())
	DeferCleanup(func() { server.Stop() })
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "puppet") })

// node is a node with an agent.
type node struct {
	enrollment.Identity

	token, dir string
}

// newNode returns a node with a token of its own.
func newNode(name, role string) *node {
	GinkgoHelper()
	n := &node{dir: GinkgoT().TempDir(), Identity: enrollment.Identity{
		Certname: name, Machine: "uid-of-" + name, Cluster: "team-a/blue", Role: role,
	}}
	var err error
	n.token, err = enrollment.Issue(server.Key, n.Identity, time.Now(), tokenValidity)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// puppet runs a command of Puppet on the node.
func (n *node) puppet(ctx context.Context, args ...string) (string, int) {
	GinkgoHelper()
	// JSON is YAML.
	attributes, err := json.Marshal(map[string]any{
		"custom_attributes": map[string]string{"challengePassword": n.token}, "extension_requests": n.Extensions(),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(n.dir, "csr_attributes.yaml"), attributes, 0o600)).To(Succeed())
	args = append(args, "--server=localhost", "--certname="+n.Certname, "--confdir="+n.dir, "--color=false", "--keylength=2048")
	for _, folder := range []string{"vardir", "ssldir", "rundir", "logdir", "publicdir"} {
		args = append(args, "--"+folder+"="+filepath.Join(n.dir, folder))
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var out bytes.Buffer
	command := exec.CommandContext(ctx, "puppet", args...)
	command.Stdout, command.Stderr = &out, &out
	err = inside(command.Run)
	Expect(ctx.Err()).NotTo(HaveOccurred(), "puppet did not end: %s", &out)
	if command.ProcessState == nil {
		Expect(err).NotTo(HaveOccurred())
	}
	GinkgoWriter.Printf("$ puppet %v\n%s", args, &out)
	return out.String(), command.ProcessState.ExitCode()
}

// request sends a certificate request, which the server may refuse.
func (n *node) request(ctx context.Context) {
	GinkgoHelper()
	// It also fails if the server has a certificate for another key.
	out, _ := n.puppet(ctx, "ssl", "submit_request", "--verbose")
	Expect(out).To(ContainSubstring("Submitted certificate request"))
}

// enroll requests the certificate of the node once.
func (n *node) enroll(ctx context.Context) (string, int) {
	GinkgoHelper()
	return n.puppet(ctx, "ssl", "bootstrap", "--waitforcert=0", "--verbose")
}
