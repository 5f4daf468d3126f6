package autoscaler_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// version is that of the release which the specs generate from.
const version = "v0.1.0"

var (
	apiServer *env.Env
	// repository holds a release.
	repository string
)

func TestAutoscaler(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "The contract with cluster-autoscaler")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	apiServer, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(apiServer.Stop()).To(Succeed()) })
	repository = GinkgoT().TempDir()
	out, err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), repository, version).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
})

// generate returns what clusterctl makes of the flavour for a hypervisor.
func generate(ctx context.Context, provider string, variables map[string]string) []byte {
	GinkgoHelper()
	paths, err := tools.Paths(ctx, GinkgoWriter, "clusterctl")
	Expect(err).NotTo(HaveOccurred())
	template := filepath.Join(repository, "infrastructure-"+provider, version, "cluster-template-autoscaled.yaml")
	cmd := exec.CommandContext(ctx, paths["clusterctl"], "generate", "yaml", "--from", template)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+repository)
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), said.String())
	return out
}
