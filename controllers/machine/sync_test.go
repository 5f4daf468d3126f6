package machine_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

// haveSynced matches a machine by the VirtualMachineSynced condition.
func haveSynced(status metav1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return WithTransform(condition(infrav1.VirtualMachineSyncedCondition), And(
		HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message)))
}

var _ = Describe("The synced settings of a VM", func() {
	It("are synced before the first boot", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.SetNewOutOfSync("1 NIC is missing")
		rig.Hypervisor.Fail(fake.Sync, broken(infrav1.HypervisorErrorReason, "the VM is locked"))
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.HypervisorErrorReason, Equal("Syncing VM: the VM is locked")),
			haveSynced(metav1.ConditionFalse, infrav1.HypervisorErrorReason, Equal("Syncing VM: the VM is locked"))))
		Expect(rig.Hypervisor.Calls(fake.Start)).To(BeZero())
		rig.Hypervisor.Repair(fake.Sync)
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		Expect(rig.Hypervisor.Calls(fake.Start)).To(Equal(1))
	})

	It("are synced independently of the VM's lifecycle, and a failure blocks nothing", func(ctx SpecContext) {
		rig := up(ctx)
		Eventually(machineOf(ctx, rig)).Should(haveSynced(metav1.ConditionFalse, infrav1.WaitingForNodeReason, Not(BeEmpty())))
		rig.Hypervisor.Fail(fake.Sync, broken(infrav1.PlacementNotFoundReason, "the group does not exist"))
		rig.Hypervisor.SetOutOfSync(rig.Key(), "The VM is not in its group")
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(),
			haveSynced(metav1.ConditionFalse, infrav1.PlacementNotFoundReason, Equal("Syncing VM: the group does not exist"))))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.PlacementNotFoundReason)))

		By("publishing changes meanwhile")
		rig.Hypervisor.SetAddresses(rig.Key(), clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "192.0.2.77"})
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), HaveField("Status.Addresses", ConsistOf(HaveField("Address", "192.0.2.77")))))
		calls := rig.Hypervisor.Calls(fake.Sync)
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Sync) }).Should(BeNumerically(">", calls))
		Eventually(eventsOf(ctx, rig)).Should(WithTransform(warnings, Equal(1)))

		By("fixing the cause")
		rig.Hypervisor.Repair(fake.Sync)
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(),
			haveSynced(metav1.ConditionFalse, infrav1.WaitingForNodeReason, Not(BeEmpty()))))
	})

	It("lose the user data once after the node has joined", func(ctx SpecContext) {
		rig := up(ctx)
		Consistently(func() int { return rig.Hypervisor.Calls(fake.Sync) }).Should(BeZero())
		Expect(rig.Hypervisor.HasUserData(rig.Key())).To(BeTrue())
		Expect(rig.Join(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), haveSynced(metav1.ConditionTrue, infrav1.SyncedReason, BeEmpty())))
		Expect(rig.Hypervisor.HasUserData(rig.Key())).To(BeFalse())
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(normal("Cleared")))

		By("leaving it alone after a restart of the VM")
		rig.Hypervisor.PowerOff(rig.Key())
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Start) }).Should(Equal(2))
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		Expect(rig.Hypervisor.Calls(fake.Sync)).To(Equal(1))
	})
})

var _ = Describe("The host of a VM", func() {
	hostLabel := func(ctx SpecContext, rig *infratest.Rig) func() (string, error) {
		return func() (string, error) {
			m := rig.Machine()
			err := get(ctx, rig, m)()
			return m.Labels[infrav1.HostLabel], err
		}
	}

	It("is reported and set as a label of the Machine, and follows migrations", func(ctx SpecContext) {
		rig := up(ctx)
		Eventually(machineOf(ctx, rig)).Should(HaveField("Status.Host", "host-1.example.test"))
		Eventually(hostLabel(ctx, rig)).Should(Equal("host-1.example.test"))
		rig.Hypervisor.Migrate(rig.Key(), "2001:db8::7")
		Eventually(machineOf(ctx, rig)).Should(HaveField("Status.Host", "2001:db8::7"))
		Eventually(hostLabel(ctx, rig)).Should(Equal("2001-db8-7"))

		By("keeping the known host while the hypervisor does not report it")
		calls := rig.Hypervisor.Calls(fake.Observe)
		rig.Hypervisor.Migrate(rig.Key(), "")
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Observe) }).Should(BeNumerically(">", calls))
		Consistently(machineOf(ctx, rig)).Should(HaveField("Status.Host", "2001:db8::7"))
		Expect(hostLabel(ctx, rig)()).To(Equal("2001-db8-7"))
	})

	It("follows migrations after a restore from a folder", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		machine := rig.Machine()
		machine.Labels[infrav1.HostLabel] = "host-of-the-past"
		restored := *rig
		restored.Client = client.WithFieldOwner(rig.Client, "clusterctl")
		Expect(restored.CreateMachine(ctx, machine, rig.InfraMachine())).To(Succeed())
		Eventually(hostLabel(ctx, rig)).Should(Equal("host-1.example.test"))
	})

	It("is not written if another field manager owns the label", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		machine := rig.Machine()
		machine.Labels[infrav1.HostLabel] = "theirs"
		Expect(rig.CreateMachine(ctx, machine, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), HaveField("Status.Host", "host-1.example.test")))
		Consistently(hostLabel(ctx, rig)).Should(Equal("theirs"))
		Expect(eventsOf(ctx, rig)()).To(WithTransform(warnings, BeZero()))
	})
})
