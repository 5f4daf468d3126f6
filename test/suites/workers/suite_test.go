package workers

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout   = 6 * time.Minute
	changeTimeout = 6 * time.Minute
	deleteTimeout = 4 * time.Minute
	reportTimeout = 2 * time.Minute
)

// everything is set where all specs run, and not only the short ones.
var everything = os.Getenv("NOVA_SUITES") == "full"

// b is the bed that all specs share.
var b *bed.Bed

func TestWorkers(t *testing.T) {
	harness.RunLong(t, "Workers on hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	b = harness.Start(ctx, bed.Options{Name: "workers", Hypervisors: hypervisors(), MachineTaints: true})
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "workers") })

// hypervisors are those of the bed.
func hypervisors() []string { return harness.Hypervisors(everything) }
