package etcd

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/s3"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
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
	options := bed.Options{Name: "etcd"}
	if everything {
		options.Vault = "bao"
	}
	b = harness.Start(ctx, options)
	dir, err := os.MkdirTemp("", "nova-s3-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(os.RemoveAll(dir)).To(Succeed()) })
	store, err = s3.Start(ctx, s3.Options{Dir: dir, IP: bridge, Inside: b.Inside, Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { store.Stop() })
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "etcd") })

// cluster is a cluster whose name and address are used once.
func cluster(name string, address int) bed.Cluster {
	return bed.Cluster{Name: name, Namespace: name, ControlPlanes: 1, Endpoint: "10.77.0." + strconv.Itoa(address)}
}
