package workers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// now is this second, as an object has it.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// removes are the specs about the choice of the machine to delete on scale-down.
func removes(c *bed.Cluster) {
	// grows makes a third machine, the newest, and returns all: the oldest first.
	grows := func(ctx context.Context, order clusterv1.MachineSetDeletionOrder) []string {
		GinkgoHelper()
		change(ctx, c, func(md *clusterv1.MachineDeployment) { md.Spec.Deletion.Order = order })
		scale(ctx, c, 3)
		awaitHealthy(ctx, c, bootTimeout)
		return namesNow(ctx, c)
	}

	It("go newest first", func(ctx context.Context) {
		before := grows(ctx, clusterv1.NewestMachineSetDeletionOrder)
		scale(ctx, c, 2)
		awaitHealthy(ctx, c, deleteTimeout)
		Expect(namesNow(ctx, c)).To(ConsistOf(before[0], before[1]))
	})

	It("go oldest first", func(ctx context.Context) {
		before := grows(ctx, clusterv1.OldestMachineSetDeletionOrder)
		// The two existing machines may be of the same second, so their order by age is unknown.
		scale(ctx, c, 1)
		awaitHealthy(ctx, c, deleteTimeout)
		Expect(namesNow(ctx, c)).To(ConsistOf(before[2]))
		scale(ctx, c, 2)
		awaitHealthy(ctx, c, bootTimeout)
	})

	It("go in no order, but the unhealthy one first", func(ctx context.Context) {
		change(ctx, c, func(md *clusterv1.MachineDeployment) {
			// Its pods cannot be stopped any more.
			md.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](1)
		})
		victim := grows(ctx, clusterv1.RandomMachineSetDeletionOrder)[1]
		// A node whose kubelet does not report may be healthy, and is no more unhealthy than
		// the others.
		_, err := b.Exec(ctx, victim, "systemctl", "stop", "containerd")
		Expect(err).NotTo(HaveOccurred())
		Eventually(machine).WithContext(ctx).WithArguments(c, victim).WithTimeout(reportTimeout).Should(WithTransform(
			func(m *clusterv1.Machine) bool { return conditions.IsFalse(m, clusterv1.MachineNodeHealthyCondition) }, BeTrue()))
		scale(ctx, c, 2)
		awaitHealthy(ctx, c, deleteTimeout)
		Expect(namesNow(ctx, c)).NotTo(ContainElement(victim))
	})
}
