package controlplane

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

var _ = Describe("A restored copy of a management cluster", func() {
	const original, restored = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

	takesOver := func(ctx context.Context, r *rig) {
		GinkgoHelper()
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		before := cluster.DeepCopy()
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fence.TakeOverAnnotation, restored)
		Expect(testEnv.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
	}

	It("changes no machine and no member of etcd, until it takes over", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		reconciler.Fence = fence.For(original)
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)
		Expect(r.condition(ctx, fence.ConditionType)()).To(HaveField("Status", metav1.ConditionTrue))

		By("looking at the same objects from another management cluster")
		workloadCluster := &fakeClusters{}
		reconciler = direct(testEnv.Config, workloadCluster)
		reconciler.Fence = fence.For(restored)
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(5)) })
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, fence.ConditionType)()).To(And(HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", fence.OtherReason), HaveField("Message", ContainSubstring(fence.TakeOverAnnotation+"="+restored))))
		r.expectMachines(ctx, 3)
		Expect(workloadCluster.removed).To(BeEmpty())

		By("taking over")
		takesOver(ctx, r)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, fence.ConditionType)()).To(HaveField("Status", metav1.ConditionTrue))
		r.expectMachines(ctx, 5)
	})

	It("keeps the machines when its control plane is deleted", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		reconciler.Fence = fence.For(original)
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)
		c, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(testEnv.Client.Delete(ctx, c)).To(Succeed())

		// Workers do not matter to a management cluster that does not act.
		reconciler = direct(refuse(http.MethodGet, "/machinedeployments", "/machinesets", "/machinepools"), &fakeClusters{})
		reconciler.Fence = fence.For(restored)
		result, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeZero())
		Expect(r.condition(ctx, controlplanev1.DeletingCondition)()).To(HaveField("Message", ContainSubstring(fence.TakeOverAnnotation)))
		Expect(r.machines(ctx)).To(And(HaveLen(3), HaveEach(HaveField("DeletionTimestamp", BeNil()))))
	})
})
