package controlplane

import (
	"context"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

var _ = describeOn("A control plane of three", func(hypervisorName string, address int) {
	c := cluster("three-"+hypervisorName, address, 3, 0)
	c.Hypervisor = hypervisorName
	p := &promises{}

	It("comes up with three voters in etcd", func(ctx context.Context) {
		create(ctx, c)
	})

	It("answers soon after the host with its address is lost, and takes the host back", func(ctx context.Context) {
		victim := holder(ctx, c)
		seen := probing(ctx, c, func() {
			// A victim that is started at once may hold it again.
			goOn := stopProvider(c)
			Expect(hypervisor(c).PowerOff(ctx, victim)).To(Succeed())
			Eventually(func(ctx context.Context) (string, error) { return b.EndpointHolder(ctx, *c) }).
				WithContext(ctx).WithTimeout(reportTimeout).ShouldNot(Equal(victim), "the address moved")
			goOn()
			awaitHealthy(ctx, c, changeTimeout)
		})
		Expect(seen.Failures).NotTo(BeZero(), "the holder was lost")
		p.withinf(hardLoss, seen.Longest().Length, "API after a hard loss of the address's holder: %s", seen)
	})

	It("scales down to one and takes its members with it", func(ctx context.Context) {
		seen := probing(ctx, c, func() { scale(ctx, c, 1) })
		p.withinf(plannedLoss, seen.Longest().Length, "API during the removal of two: %s", seen)
	})

	It("replaces its machine when rollout.after passes", func(ctx context.Context) {
		before := names(ctx, c)
		started := time.Now()
		seen := probing(ctx, c, func() {
			change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Rollout.After = ptr.To(metav1.Now()) })
			replaced(ctx, c, before...)
		})
		p.withinf(plannedLoss, seen.Longest().Length, "rollout of one: %.0f s, API: %s", time.Since(started).Seconds(), seen)
	})

	It("leaves nothing when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})

	p.kept()
})
