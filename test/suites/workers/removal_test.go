package workers

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// now is this second, as an object has it.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// removes are the specs about which machine goes when there are too many.
func removes(c *bed.Cluster) {
	// shrinks scales down by one in an order, and returns who was there and who
	// is gone.
	shrinks := func(ctx context.Context, order clusterv1.MachineSetDeletionOrder, from int) (before []string, gone string) {
		GinkgoHelper()
		change(ctx, c, func(md *clusterv1.MachineDeployment) { md.Spec.Deletion.Order = order })
		// One after the other, so that there are an oldest and a newest.
		for size := c.Workers + 1; size <= from; size++ {
			scale(ctx, c, size)
			awaitSettled(ctx, c, bootTimeout)
		}
		before = namesNow(ctx, c)
		scale(ctx, c, from-1)
		awaitSettled(ctx, c, deleteTimeout)
		after := namesNow(ctx, c)
		left := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(after, name) })
		Expect(left).To(HaveLen(1))
		return before, left[0]
	}

	It("go newest first", func(ctx context.Context) {
		before, gone := shrinks(ctx, clusterv1.NewestMachineSetDeletionOrder, 3)
		Expect(gone).To(Equal(before[2]))
	})

	It("go oldest first", func(ctx context.Context) {
		before, gone := shrinks(ctx, clusterv1.OldestMachineSetDeletionOrder, 3)
		Expect(gone).To(Equal(before[0]))
	})

	It("go in no order, but the unhealthy one first", func(ctx context.Context) {
		change(ctx, c, func(md *clusterv1.MachineDeployment) {
			md.Spec.Deletion.Order = clusterv1.RandomMachineSetDeletionOrder
		})
		scale(ctx, c, 3)
		awaitSettled(ctx, c, bootTimeout)
		victim := namesNow(ctx, c)[1]
		_, err := b.Exec(ctx, victim, "systemctl", "disable", "--now", "kubelet")
		Expect(err).NotTo(HaveOccurred())
		Eventually(said).WithContext(ctx).WithArguments(c, victim, clusterv1.MachineNodeHealthyCondition).WithTimeout(reportTimeout).
			Should(ContainSubstring("Kubelet stopped posting node status"))
		scale(ctx, c, 2)
		awaitSettled(ctx, c, deleteTimeout)
		Expect(namesNow(ctx, c)).NotTo(ContainElement(victim))
	})
}
