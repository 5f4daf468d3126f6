package host_test

import (
	"context"
	"os"
	"testing"
	"time"

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

// orphanDir is set for a process that only powers the orphan on, to be killed.
const orphanDir = "NOVA_TEST_ORPHAN_DIR"

var orphan = virtualMachine("orphan", "52:54:00:00:00:13")

func TestHost(t *testing.T) {
	if dir := os.Getenv(orphanDir); dir != "" {
		powerOnOrphan(t, dir)
		return
	}
	RegisterFailHandler(Fail)
	// Commands in a host that boots use resources that the boot needs.
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Hosts")
}

// powerOnOrphan powers a host on and waits to be killed.
func powerOnOrphan(t *testing.T, dir string) {
	t.Helper()
	assets, err := host.Prepare(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	r := &host.Runner{Bed: bed, Dir: dir, Assets: assets}
	h, err := r.PowerOn(t.Context(), orphan)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("powered on\n"); err != nil {
		t.Fatal(err)
	}
	<-h.Done()
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
