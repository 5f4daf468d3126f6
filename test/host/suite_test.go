package host_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// bed is the name of the suite's bed.
const bed = "host-suite"

var (
	assets  host.Assets
	network *host.Network
	runner  *host.Runner
)

func TestHost(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	assets, err = host.Prepare(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	// A run that was killed left these behind.
	Expect(host.Cleanup(ctx, bed, GinkgoWriter)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(host.Cleanup(ctx, bed, GinkgoWriter, dir)).To(Succeed())
	})
	network = host.NewNetwork(bed, dir+"/network", GinkgoWriter)
	Expect(network.Up(ctx)).To(Succeed())
	runner = &host.Runner{Bed: bed, Dir: dir + "/disks", Assets: assets}
})
