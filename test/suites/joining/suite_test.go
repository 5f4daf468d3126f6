package joining

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
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
	Expect(bed.Down(ctx, bedName)).To(Succeed(), "a bed that a crashed run left is taken away first")
	options := bed.Options{Name: bedName, Hypervisors: bed.Hypervisors(), Log: GinkgoWriter, Progress: func(step string) func(error) {
		By(step)
		return func(error) {}
	}}
	if everything {
		options.Providers = append(bed.Providers(options.Hypervisors...), bed.KubeadmProviders()...)
	}
	var err error
	b, err = bed.Start(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(b.Stop(ctx)).To(Succeed()) })
})

var _ = JustAfterEach(func(ctx context.Context) {
	if !CurrentSpecReport().Failed() {
		return
	}
	dir := filepath.Join(tools.Root(), "_artifacts", bedName, strings.Join(append(CurrentSpecReport().Labels(), strconv.Itoa(CurrentSpecReport().LeafNodeLocation.LineNumber)), "-"))
	if err := b.CollectArtifacts(ctx, dir); err != nil {
		AddReportEntry("collecting artifacts failed", err.Error())
		return
	}
	AddReportEntry("what the bed was like", dir)
})
