package nodeimage

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

const (
	bedName     = "nodeimage"
	bootTimeout = 5 * time.Minute
)

var (
	assets host.Assets
	// everything makes images too; otherwise only the root file system of the hosts is inspected.
	everything = os.Getenv("NOVA_SUITES") == "full"
)

func TestNodeImage(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Node images")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	assets, err = host.Prepare(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
})
