package foreign

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/fleet"
)

var _ = Describe("Cluster API's in-memory infrastructure", func() {
	It("brings control planes up, scales them down past their etcd, and lets them go", func(ctx context.Context) {
		b := start(ctx, bed.Options{
			Name: "foreign", Bodiless: true, Hypervisors: []string{}, Providers: append(bed.Providers(), bed.InMemory),
		})
		f := &fleet.Fleet{Client: b.Client, Kind: fleet.Nova, Name: "fleet", Clusters: 2, Replicas: 3, Quick: true}
		allReady := func(ctx context.Context) (int, error) { return f.Ready(ctx) }
		Expect(f.Apply(ctx)).To(Succeed())
		Eventually(allReady).WithContext(ctx).WithTimeout(readyTimeout).Should(Equal(f.Clusters), func() string {
			return unreadyConditions(ctx, f)
		})
		By("removing members of etcd, one after another")
		Expect(f.Scale(ctx, 1)).To(Succeed())
		Eventually(allReady).WithContext(ctx).WithTimeout(readyTimeout).Should(Equal(f.Clusters), func() string {
			return unreadyConditions(ctx, f)
		})
		Expect(f.Remove(ctx)).To(Succeed())
		Eventually(func(ctx context.Context) (bool, error) { return f.Gone(ctx) }).
			WithContext(ctx).WithTimeout(deleteTimeout).Should(BeTrue(), func() string { return unreadyConditions(ctx, f) })
	})
})

// unreadyConditions returns the conditions of control planes that are not ready.
func unreadyConditions(ctx context.Context, f *fleet.Fleet) string {
	text := &strings.Builder{}
	if err := f.PrintConditions(ctx, text); err != nil {
		return err.Error()
	}
	return text.String()
}
