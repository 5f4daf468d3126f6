package foreign

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// How long things may take on a slow machine that does something else.
const (
	readyTimeout  = 6 * time.Minute
	deleteTimeout = 4 * time.Minute
)

// everything is set where suites run that take long.
var everything = os.Getenv("NOVA_SUITES") == "full"

func TestForeign(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Infrastructure that is not ours")
}

// start starts a bed for one spec.
func start(ctx context.Context, options bed.Options) *bed.Bed {
	GinkgoHelper()
	Expect(bed.Down(ctx, options.Name)).To(Succeed(), "a bed of a crashed run is removed first")
	options.Log = GinkgoWriter
	b, err := bed.Start(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			Expect(b.CollectArtifacts(ctx, filepath.Join(tools.Root(), "_artifacts", options.Name))).To(Succeed())
		}
		Expect(b.Stop(ctx)).To(Succeed())
	})
	return b
}
