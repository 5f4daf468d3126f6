package gitops

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout   = 8 * time.Minute
	reportTimeout = 4 * time.Minute
	// stayTime is long enough for Flux to have tried once more.
	stayTime = 3 * time.Second
)

// everything is set if there are clusters on all hypervisors of the sample, and not only one on
// vSphere.
var everything = os.Getenv("NOVA_SUITES") == "full"

var (
	b *bed.Bed
	// programs are the programs that a user runs.
	programs map[string]string
)

func TestGitOps(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Clusters from a Git repository")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	programs, err = tools.Paths(ctx, GinkgoWriter, "sops", "age-keygen", "kubectl", "clusterctl")
	Expect(err).NotTo(HaveOccurred())
	options := bed.Options{Name: "gitops", Hypervisors: bed.Hypervisors(), Flux: true, Topology: true}
	if everything {
		options.Versions = []string{bed.OlderVersion}
	}
	b = harness.Start(ctx, options)
	Expect(kustomizev1.AddToScheme(b.Client.Scheme())).To(Succeed())
})

var _ = JustAfterEach(func(ctx context.Context) {
	harness.KeepArtifacts(ctx, b, "gitops")
	keepFollower(filepath.Join(tools.Root(), "_artifacts", "gitops", "follower"))
})
