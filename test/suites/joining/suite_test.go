package joining

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout = 6 * time.Minute
	joinTimeout = 4 * time.Minute
	bedName     = "joining"
)

// b is the bed that all specs share.
var b *bed.Bed

// everything is set where all suites run.
var everything = os.Getenv("NOVA_SUITES") == "full"

func TestJoining(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Machines that join")
}

var _ = BeforeSuite(func(ctx context.Context) {
	providers := bed.Providers(bed.VSphere)
	if everything {
		providers = append(providers, bed.KubeadmProviders()...)
	}
	b = harness.Start(ctx, bed.Options{Name: bedName, Hypervisors: []string{bed.VSphere}, Providers: providers, Late: true})
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, bedName) })
