package machine_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("A guest that may power itself off", func() {
	setPowerOff := func(ctx context.Context, rig *infratest.Rig, p infrav1.PowerOff) {
		GinkgoHelper()
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		before := m.DeepCopy()
		m.Spec.PowerOff = p
		Expect(rig.Client.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	}
	upWith := func(ctx context.Context, p infrav1.PowerOff) *infratest.Rig {
		GinkgoHelper()
		rig := up(ctx)
		setPowerOff(ctx, rig, p)
		return rig
	}
	unreachable := broken(infrav1.GuestUnreachableReason, "no tools run in the guest")

	It("receives a request, and its VM is deleted after the shutdown", func(ctx SpecContext) {
		rig := upWith(ctx, infrav1.PowerOff{Mode: infrav1.PowerOffSoft})
		rig.Hypervisor.Hold(fake.Shutdown)
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Shutdown) }).Should(Equal(1))
		Consistently(func() int { return rig.Hypervisor.Calls(fake.Delete) }).Should(BeZero())
		rig.Hypervisor.Release(fake.Shutdown)
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
		Expect(rig.Hypervisor.Calls(fake.Shutdown)).To(Equal(1))
		Eventually(eventsOf(ctx, rig)).Should(ContainElements(normal("PoweringOff"), normal("Deleting"), normal("Deleted")))
	})

	It("that does not shut down is waited for until the user changes the mode", func(ctx SpecContext) {
		rig := upWith(ctx, infrav1.PowerOff{Mode: infrav1.PowerOffSoft})
		rig.Hypervisor.Ignore(fake.Shutdown)
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.PoweringOffReason, Not(BeEmpty())))
		rig.Hypervisor.SetAddresses(rig.Key()) // triggers a reconcile
		Consistently(func() int { return rig.Hypervisor.Calls(fake.Shutdown) }).Should(Equal(1), "the request is not repeated at each event")
		setPowerOff(ctx, rig, infrav1.PowerOff{Mode: infrav1.PowerOffHard})
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
	})

	It("that does not shut down in time is powered off", func(ctx SpecContext) {
		rig := upWith(ctx, infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard, TimeoutSeconds: 3})
		rig.Hypervisor.Ignore(fake.Shutdown)
		requested := time.Now()
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Delete) }).Should(Equal(1))
		// The deletion timestamp is stored in whole seconds.
		Expect(time.Since(requested)).To(And(BeNumerically(">", 1500*time.Millisecond), BeNumerically("<", 12*time.Second)))
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Calls(fake.Shutdown)).To(Equal(1))
	})

	It("that is unreachable is powered off immediately with mode SoftThenHard", func(ctx SpecContext) {
		rig := upWith(ctx, infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard})
		rig.Hypervisor.Fail(fake.Shutdown, unreachable)
		rig.Hypervisor.FailLater(fake.Delete, broken(infrav1.HypervisorErrorReason, "the VM is locked"))
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.HypervisorErrorReason, Equal("Deleting VM: the VM is locked")))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.GuestUnreachableReason)))
		rig.Hypervisor.Repair(fake.Delete)
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Calls(fake.Shutdown)).To(Equal(1), "the request is not repeated")
	})

	It("that is unreachable is waited for with mode Soft, and it is reported", func(ctx SpecContext) {
		rig := upWith(ctx, infrav1.PowerOff{Mode: infrav1.PowerOffSoft})
		rig.Hypervisor.Fail(fake.Shutdown, unreachable)
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.GuestUnreachableReason,
			Equal("Powering off VM: no tools run in the guest")))
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Shutdown) }).Should(BeNumerically(">=", 2))
		Expect(rig.Hypervisor.Calls(fake.Delete)).To(BeZero())
		rig.Hypervisor.Repair(fake.Shutdown)
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
	})

	It("is reconciled again exactly at its timeout", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.CreateAll(ctx)).To(Succeed())
		bringUp(ctx, rig, nil)
		setPowerOff(ctx, rig, infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard, TimeoutSeconds: 10})
		rig.Hypervisor.Ignore(fake.Shutdown)
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		end := m.DeletionTimestamp.Add(10 * time.Second)
		for range 2 { // the second is another process, which repeats the request and does not reset the time
			// The time that the reconcile itself takes on a busy machine is tolerated.
			latest := time.Until(end)
			result, err := reconcilerOf(rig, nil).Reconcile(ctx, request(rig))
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(And(BeNumerically(">=", time.Until(end)), BeNumerically("<=", latest)))
			Expect(result.Priority).To(HaveValue(Equal(reconcile.DeletionPriority)))
		}
		Expect(rig.Hypervisor.Calls(fake.Shutdown)).To(Equal(2))
	})
})
