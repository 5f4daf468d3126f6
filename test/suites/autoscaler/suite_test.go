package autoscaler

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/autoscaler"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout   = 6 * time.Minute
	deleteTimeout = 4 * time.Minute
	reportTimeout = 2 * time.Minute
)

var (
	// b is the bed that all specs share.
	b *bed.Bed
	// repository holds a release.
	repository string
)

func TestAutoscaler(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Scaling from zero on hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	repository = GinkgoT().TempDir()
	Expect(autoscaler.Repository(ctx, repository)).To(Succeed())
	b = harness.Start(ctx, bed.Options{Name: "autoscaler", Hypervisors: hypervisors()})
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "autoscaler") })

// hypervisors are those to scale on: none in a short run, where the contract
// alone is checked.
func hypervisors() []string {
	if os.Getenv("NOVA_SUITES") == "full" {
		return bed.Hypervisors()
	}
	return nil
}
