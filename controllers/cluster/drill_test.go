package cluster_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

// backup returns an object as a backup contains it: without UID and status.
func backup[O client.Object](o O) O {
	copied, ok := o.DeepCopyObject().(O)
	Expect(ok).To(BeTrue())
	copied.SetUID("")
	copied.SetResourceVersion("")
	copied.SetOwnerReferences(nil)
	return copied
}

// discard deletes an object like the loss of its management cluster does: it does not wait for
// finalizers.
func discard(ctx context.Context, rig *infratest.Rig, o client.Object) {
	GinkgoHelper()
	Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	before, ok := o.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	for _, f := range o.GetFinalizers() {
		controllerutil.RemoveFinalizer(o, f)
	}
	Expect(rig.Client.Patch(ctx, o, client.MergeFrom(before))).To(Succeed())
	Expect(client.IgnoreNotFound(rig.Client.Delete(ctx, o))).To(Succeed())
	Eventually(func() error { return rig.Client.Get(ctx, client.ObjectKeyFromObject(o), o) }).Should(MatchError(ContainSubstring("not found")))
}

var _ = Describe("An old backup", func() {
	const original, restored = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

	It("is restored into a second management cluster after every machine was rolled", func(ctx SpecContext) {
		rig := newRig(ctx)
		old := rig.Key()
		rolled := hypervisor.Key{Namespace: rig.Namespace, Name: "tenant-1"}
		Expect(rig.Run(infratest.Options{Fence: fence.For(original)})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		oldMachine := rig.InfraMachine()
		Eventually(func() (string, error) {
			err := rig.Client.Get(ctx, client.ObjectKeyFromObject(oldMachine), oldMachine)
			return oldMachine.Spec.ProviderID, err
		}).ShouldNot(BeEmpty())

		By("backing up")
		infra, err := clusterOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		savedInfra, savedMachine := backup(infra), backup(oldMachine)

		By("rolling every machine")
		machine := rig.Machine()
		machine.Name, machine.Spec.InfrastructureRef.Name = rolled.Name, rolled.Name
		Expect(rig.Client.Create(ctx, machine)).To(Succeed())
		newMachine := rig.InfraMachine()
		newMachine.Name = rolled.Name
		newMachine.OwnerReferences = []metav1.OwnerReference{infratest.Owner(machine, "Machine")}
		Expect(rig.Client.Create(ctx, newMachine)).To(Succeed())
		Eventually(func() bool { return rig.Hypervisor.Exists(rolled) }).Should(BeTrue())
		Expect(rig.Client.Delete(ctx, oldMachine)).To(Succeed())
		Eventually(func() bool { return rig.Hypervisor.Exists(old) }).Should(BeFalse())
		Eventually(func() error { return rig.Client.Get(ctx, client.ObjectKeyFromObject(oldMachine), oldMachine) }).Should(HaveOccurred())
		Expect(clusterOf(ctx, rig)()).To(HaveField("Status.OrphanedVMs.Count", BeZero()))

		By("losing the management cluster")
		Expect(rig.Stop()).To(Succeed())
		discard(ctx, rig, newMachine)
		discard(ctx, rig, infra)

		By("restoring the old backup into another one")
		cluster := rig.Cluster()
		Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		savedInfra.OwnerReferences = []metav1.OwnerReference{infratest.Owner(cluster, "Cluster")}
		owner := rig.Machine()
		Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
		savedMachine.OwnerReferences = []metav1.OwnerReference{infratest.Owner(owner, "Machine")}
		Expect(rig.Client.Create(ctx, savedInfra)).To(Succeed())
		Expect(rig.Client.Create(ctx, savedMachine)).To(Succeed())
		requests := func() int {
			return rig.Hypervisor.Calls(fake.Create) + rig.Hypervisor.Calls(fake.Start) + rig.Hypervisor.Calls(fake.Shutdown) + rig.Hypervisor.Calls(fake.Delete)
		}
		before := requests()
		Expect(rig.Run(infratest.Options{Fence: fence.For(restored)})).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(And(
			have(fence.ConditionType, metav1.ConditionFalse, fence.OtherReason, ContainSubstring(fence.TakeOverAnnotation+"="+restored)),
			have(clusterv1.ReadyCondition, metav1.ConditionFalse, fence.OtherReason, Not(BeEmpty())),
			HaveField("Status.OrphanedVMs", And(HaveField("Count", BeNumerically("==", 1)),
				HaveField("VMs", ConsistOf(HaveField("Name", rolled.Name)))))))
		Eventually(eventsOf(ctx, rig)).Should(ContainElements(event("Warning", fence.OtherReason), event("Warning", infrav1.OrphanFoundReason)))

		By("deleting the machine of the backup, which must delete no VM")
		Expect(rig.Client.Delete(ctx, savedMachine)).To(Succeed())
		Consistently(requests).Should(Equal(before))

		By("taking over")
		beforeTakeOver := cluster.DeepCopy()
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fence.TakeOverAnnotation, restored)
		Expect(rig.Client.Patch(ctx, cluster, client.MergeFrom(beforeTakeOver))).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(have(fence.ConditionType, metav1.ConditionTrue, fence.MatchesReason, BeEmpty()))
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		Eventually(func() error { return rig.Client.Get(ctx, client.ObjectKeyFromObject(savedMachine), savedMachine) }).
			Should(MatchError(ContainSubstring("not found")))
		Expect(rig.Hypervisor.Exists(rolled)).To(BeTrue(), "an orphan is reported and not deleted")
		Expect(requests()).To(Equal(before))
	})
})
