package etcd

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
	"github.com/nova-platform/cluster-api-provider-nova/test/s3"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout    = 6 * time.Minute
	restoreTimeout = 12 * time.Minute
	deleteTimeout  = 4 * time.Minute
	reportTimeout  = time.Minute
)

// bridge is the address of the bed's own side in the hosts' network.
const bridge = "10.77.0.1"

// everything is set where all specs run, and not only the short ones.
var everything = os.Getenv("NOVA_SUITES") == "full"

var (
	// b is the bed that all specs share, and store the S3 server in it.
	b     *bed.Bed
	store *s3.Server
)

func TestEtcd(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Snapshots and restores of etcd on hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	name := "etcd"
	Expect(bed.Down(ctx, name)).To(Succeed(), "a bed that a crashed run left is taken away first")
	var err error
	b, err = bed.Start(ctx, bed.Options{Name: name, Log: GinkgoWriter, Progress: func(step string) func(error) {
		By(step)
		return func(error) {}
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(b.Stop(ctx)).To(Succeed()) })
	dir, err := os.MkdirTemp("", "nova-s3-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(os.RemoveAll(dir)).To(Succeed()) })
	store, err = s3.Start(ctx, s3.Options{Dir: dir, IP: bridge, Inside: b.Inside, Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { store.Stop() })
})

var _ = JustAfterEach(func(ctx context.Context) {
	report := CurrentSpecReport()
	if !report.Failed() {
		return
	}
	name := append(report.Labels(), strconv.Itoa(report.LeafNodeLocation.LineNumber))
	dir := filepath.Join(tools.Root(), "_artifacts", "etcd", strings.Join(name, "-"))
	if err := b.CollectArtifacts(ctx, dir); err != nil {
		AddReportEntry("collecting artifacts failed", err.Error())
		return
	}
	AddReportEntry("what the bed was like", dir)
})

// cluster is a cluster whose name and address are used once.
func cluster(name string, address int) bed.Cluster {
	return bed.Cluster{Name: name, Namespace: name, ControlPlanes: 1, Endpoint: "10.77.0." + strconv.Itoa(address)}
}
