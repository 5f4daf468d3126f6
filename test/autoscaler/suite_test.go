package autoscaler_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/test/autoscaler"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

var (
	apiServer *env.Env
	// repository holds a release.
	repository string
)

func TestAutoscaler(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "The contract with cluster-autoscaler")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	apiServer, err = env.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(apiServer.Stop()).To(Succeed()) })
	repository = GinkgoT().TempDir()
	Expect(autoscaler.Repository(ctx, repository)).To(Succeed())
})
