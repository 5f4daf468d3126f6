package renderers_test

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
	bed         = "renderers"
	bootTimeout = 3 * time.Minute
)

var (
	assets host.Assets
	// everything boots guests too; otherwise only files are made.
	everything = os.Getenv("NOVA_SUITES") == "full"
	booted     = []string{"network-manager", "eni", "networkd", "netplan"}
)

func TestRenderers(t *testing.T) {
	RegisterFailHandler(Fail)
	// Each poll runs a command on a host that is booting, and slows it down.
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Renderers")
}

var _ = BeforeSuite(func(ctx context.Context) {
	names := []string{"netplan"} // Debian itself has all others
	if everything {
		names = booted
	}
	var err error
	assets, err = host.PrepareRenderers(ctx, GinkgoWriter, names...)
	Expect(err).NotTo(HaveOccurred())
})
