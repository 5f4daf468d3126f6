package hostile

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// progressTimeout bounds the creation of another tenant's machine during an
// attack.
const progressTimeout = time.Minute

// refuseTimeout bounds all other waits. It is long, because the test machine may
// be busy.
const refuseTimeout = 2 * time.Minute

// b is the bed that all specs share.
var b *bed.Bed

func TestHostile(t *testing.T) {
	RegisterFailHandler(Fail)
	// Without this an Eventually with a context has no timeout, and an attack that
	// succeeds holds up the suite instead of being named.
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	SetDefaultEventuallyTimeout(refuseTimeout)
	RunSpecs(t, "Hostile parties")
}

var _ = BeforeSuite(func(ctx context.Context) {
	b = harness.Start(ctx, bed.Options{
		Name: "hostile", Bodiless: true, Flux: true, Leaderless: true, Hypervisors: bed.Hypervisors(),
		Flags: []string{"deny-endpoints=" + managementNetwork},
	})
	started = processes()
	limited, unlimited := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(unlimited)
	go limitMemory(limited)
	Expect(b.Publish(ctx, "evil", "v1", map[string]string{"evil/evil.yaml": administrator})).To(Succeed())
	startBlue(ctx)
	if suite, _ := GinkgoConfiguration(); len(suite.FocusStrings) == 0 {
		startCopy(ctx)
	}
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "hostile") })

// The last line of "make hostile".
var _ = ReportAfterSuite("count", func(report Report) {
	attacks, blocked := 0, 0
	for i := range report.SpecReports {
		spec := &report.SpecReports[i]
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		attacks++
		if spec.State == types.SpecStatePassed {
			blocked++
		}
	}
	// Ginkgo has not ended its line of dots.
	fmt.Fprintf(os.Stdout, "\nhostile: attacks=%d blocked=%d\n", attacks, blocked)
})
