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
	bootTimeout   = 6 * time.Minute
	joinTimeout   = 4 * time.Minute
	reportTimeout = 3 * time.Minute
	bedName       = "joining"
)

// b is the bed that all specs share.
var b *bed.Bed

// everything is set where machines that do not fail are looked at, too.
var everything = os.Getenv("NOVA_SUITES") == "full"

func TestJoining(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Machines that join")
}

var _ = BeforeSuite(func(ctx context.Context) {
	options := bed.Options{Name: bedName, Hypervisors: bed.Hypervisors()}
	if everything {
		options.Providers = append(bed.Providers(options.Hypervisors...), bed.KubeadmProviders()...)
	}
	b = harness.Start(ctx, options)
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, bedName) })
