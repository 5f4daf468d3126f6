package machine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

// The objects and the hypervisor stay the same while another manager with another identity replaces
// the first one: a copy that is restored into another management cluster is in that state.
var _ = Describe("A restored copy of a management cluster", func() {
	const original, restored = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

	becomesCopy := func(rig *infratest.Rig) {
		GinkgoHelper()
		Expect(rig.Stop()).To(Succeed())
		Expect(rig.Run(infratest.Options{Fence: fence.For(restored)})).To(Succeed())
	}
	takesOver := func(ctx context.Context, rig *infratest.Rig, uid string) {
		GinkgoHelper()
		cluster := rig.Cluster()
		Expect(get(ctx, rig, cluster)()).To(Succeed())
		before := cluster.DeepCopy()
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fence.TakeOverAnnotation, uid)
		Expect(rig.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
	}
	matches := func(ctx context.Context, rig *infratest.Rig) func() (*metav1.Condition, error) {
		return func() (*metav1.Condition, error) {
			c := rig.InfraCluster()
			err := rig.Client.Get(ctx, client.ObjectKeyFromObject(c), c)
			return conditions.Get(c, fence.ConditionType), err
		}
	}
	reportsOther := func() gomegatypes.GomegaMatcher {
		return And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", fence.OtherReason),
			HaveField("Message", ContainSubstring(fence.TakeOverAnnotation+"="+restored)))
	}
	changes := func(rig *infratest.Rig) func() int {
		return func() int {
			sum := 0
			for _, verb := range []fake.Verb{fake.Create, fake.Start, fake.Sync, fake.Shutdown, fake.Delete} {
				sum += rig.Hypervisor.Calls(verb)
			}
			return sum
		}
	}

	It("deletes no VM with a Cluster, until it takes over", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{Fence: fence.For(original)})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		Eventually(matches(ctx, rig)).Should(HaveField("Status", metav1.ConditionTrue))
		Eventually(rig.Quiet(fake.Sync)).Should(BeTrue())

		becomesCopy(rig)
		Eventually(matches(ctx, rig)).Should(reportsOther())
		Expect(machineOf(ctx, rig)()).To(beProvisioned(), "a copy still shows the state of the VM")
		before := changes(rig)()

		By("deleting the objects of the copy")
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Expect(rig.Client.Delete(ctx, rig.InfraCluster())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, fence.OtherReason, ContainSubstring("is changed or deleted")))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(fence.OtherReason)))
		Consistently(changes(rig)).Should(Equal(before))
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeTrue())

		By("taking over")
		takesOver(ctx, rig, restored)
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Eventually(get(ctx, rig, rig.InfraCluster())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
	})

	It("creates and starts no VM, until it takes over", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{Fence: fence.For(original)})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Eventually(matches(ctx, rig)).Should(HaveField("Status", metav1.ConditionTrue))

		becomesCopy(rig)
		Eventually(matches(ctx, rig)).Should(reportsOther())
		Expect(rig.CreateMachine(ctx, rig.Machine(), rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, fence.OtherReason, HavePrefix("Creating VM: ")))
		Consistently(changes(rig)).Should(BeZero())

		takesOver(ctx, rig, restored)
		Eventually(matches(ctx, rig)).Should(HaveField("Status", metav1.ConditionTrue))
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
	})

	It("makes the original read-only after it took over there too", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{Fence: fence.For(original)})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		takesOver(ctx, rig, restored)
		Eventually(matches(ctx, rig)).Should(HaveField("Reason", fence.OtherReason))
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, fence.OtherReason, Not(BeEmpty())))
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeTrue())
	})

	It("is not distinguished from the original before there is an ID", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{Fence: fence.For(original)})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Eventually(func(g Gomega) {
			c := rig.InfraCluster()
			g.Expect(get(ctx, rig, c)()).To(Succeed())
			g.Expect(c.Annotations).To(And(HaveKey(infrav1.ClusterIDAnnotation), HaveKeyWithValue(fence.RecordAnnotation, original)))
		}).Should(Succeed())
	})
})
