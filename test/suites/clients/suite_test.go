package clients

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

const (
	// commandTimeout limits one run of a client.
	commandTimeout = 3 * time.Minute
	// buildTimeout limits the build of a client on a slow machine.
	buildTimeout = 30 * time.Minute
	// driverTimeout bounds the calls of this project's driver for one machine.
	driverTimeout = time.Minute

	vmFolder = "/DC0/vm/" + vcenter.DefaultFolder
	pool     = "/DC0/host/DC0_C0/Resources/DC0_C0_RP1"
	store    = "LocalDS_1"
)

// everything is set where suites run that take long.
var everything = os.Getenv("NOVA_SUITES") == "full"

func TestClients(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Clients of other projects")
}

// build returns the paths of programs by their names.
func build(ctx context.Context, names ...string) map[string]string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	programs, err := tools.Paths(ctx, GinkgoWriter, names...)
	Expect(err).NotTo(HaveOccurred())
	return programs
}

// site is a vCenter of one spec, and a home directory for its clients.
type site struct {
	*vcenter.Server

	home string
	// ca is the path of the CA certificate.
	ca string
}

// startSite starts a vCenter. All requests of the spec must fit the API.
func startSite(ctx context.Context) *site {
	GinkgoHelper()
	server, err := vcenter.Start(context.WithoutCancel(ctx), vcenter.Options{
		Delays: map[string]time.Duration{"CloneVM_Task": 50 * time.Millisecond, "*": 10 * time.Millisecond},
	})
	Expect(err).NotTo(HaveOccurred())
	s := &site{Server: server, home: GinkgoT().TempDir()}
	s.ca = filepath.Join(s.home, "ca.crt")
	Expect(os.WriteFile(s.ca, server.CABundle, 0o600)).To(Succeed())
	DeferCleanup(func() {
		server.Stop()
		Expect(server.Violations()).To(BeEmpty(), "requests that do not fit vCenter's API")
	})
	return s
}

// vm returns the VM of a name, which must be the only one.
func (s *site) vm(name string) vcenter.VM {
	GinkgoHelper()
	var found []vcenter.VM
	for _, vm := range s.VMs() {
		if vm.Name == name {
			found = append(found, vm)
		}
	}
	Expect(found).To(HaveLen(1), "VMs called %s", name)
	return found[0]
}

// names are the names of all VMs.
func (s *site) names() (names []string) {
	for _, vm := range s.VMs() {
		names = append(names, vm.Name)
	}
	return names
}

// has reports whether a datastore has a file.
func (s *site) has(file string) bool {
	GinkgoHelper()
	found, err := s.HasFile(file)
	Expect(err).NotTo(HaveOccurred())
	return found
}

// run runs a program with nothing in its environment but env and a home directory.
// It returns the output and the exit code.
func (s *site) run(ctx context.Context, dir string, env []string, program string, args ...string) (string, int) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append([]string{"HOME=" + s.home, "PATH=/usr/bin:/bin"}, env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	GinkgoWriter.Printf("$ %s %s\n%s", filepath.Base(program), strings.Join(args, " "), &out)
	Expect(ctx.Err()).NotTo(HaveOccurred(), "%s %s did not end", program, strings.Join(args, " "))
	if cmd.ProcessState == nil {
		Expect(err).NotTo(HaveOccurred())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
