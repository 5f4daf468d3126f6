package inplace

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
	bootTimeout   = 8 * time.Minute
	changeTimeout = 4 * time.Minute
)

// everything is set where all specs run, and not only the short ones.
var everything = os.Getenv("NOVA_SUITES") == "full"

// b is the bed that all specs share.
var b *bed.Bed

func TestInPlace(t *testing.T) {
	harness.RunLong(t, "Updates in place on hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	options := bed.Options{Name: "inplace", Hypervisors: harness.Hypervisors(everything), InPlace: true}
	if everything {
		options.Versions = []string{bed.OlderVersion, bed.NewerVersion}
	}
	b = harness.Start(ctx, options)
	Expect(b.RegisterExtension(ctx)).To(Succeed())
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "inplace") })
