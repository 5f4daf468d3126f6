package machine_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("The deletion of a machine", func() {
	It("works without Cluster and Machine", func(ctx SpecContext) {
		rig := up(ctx)
		Expect(rig.Client.Delete(ctx, rig.Cluster())).To(Succeed())
		Expect(rig.Client.Delete(ctx, rig.Machine())).To(Succeed())
		Eventually(get(ctx, rig, rig.Cluster())).Should(beGone())
		Eventually(get(ctx, rig, rig.Machine())).Should(beGone())
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
	})

	It("of its Machine starts no VM", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		machine := rig.Machine()
		machine.Finalizers = []string{clusterv1.MachineFinalizer}
		machine.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "NovaConfig", Name: "tenant-0",
		}}
		Expect(rig.CreateMachine(ctx, machine, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.WaitingForBootstrapDataReason, Not(BeEmpty())))

		By("writing the data while the Machine is being deleted")
		Expect(rig.Client.Delete(ctx, rig.Machine())).To(Succeed())
		Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		patched := machine.DeepCopy()
		patched.Spec.Bootstrap.DataSecretName = ptr.To(infratest.BootstrapName)
		Expect(rig.Client.Patch(ctx, patched, client.MergeFrom(machine))).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.DeletingReason, ContainSubstring("no VM is created")))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeZero())

		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
	})

	It("searches for a VM even without bootstrap data", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		machine := rig.Machine()
		machine.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "NovaConfig", Name: "tenant-0",
		}}
		Expect(rig.CreateMachine(ctx, machine, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.WaitingForInfrastructureReason, Not(BeEmpty())))

		By("finding one that a crash left behind")
		driver, err := fake.Connector[*vspherev1.NovaVSphereMachine]{Hypervisor: rig.Hypervisor}.Connect(ctx, rig.InfraMachine())
		Expect(err).NotTo(HaveOccurred())
		Expect(driver.Create(ctx, rig.InfraMachine(), hypervisor.CreateOptions{})).To(Succeed())
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
		Expect(rig.Hypervisor.Calls(fake.Delete)).To(Equal(1))
	})

	It("keeps the machine while it is unknown whether its VM was deleted", func(ctx SpecContext) {
		rig := up(ctx)
		rig.Hypervisor.Fail(fake.Connect, &hypervisor.Error{
			Reason: infrav1.CredentialsInvalidReason, Terminal: true, Err: errText(`Secret "vcenter" does not exist`),
		})
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.CredentialsInvalidReason, Equal(`Connecting to hypervisor: Secret "vcenter" does not exist`)),
			HaveField("Finalizers", ConsistOf(infrav1.MachineFinalizer))))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.CredentialsInvalidReason)))

		By("trying again though the error was terminal")
		rig.Hypervisor.Repair(fake.Connect)
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
	})

	It("repeats a deletion that fails later", func(ctx SpecContext) {
		rig := up(ctx)
		rig.Hypervisor.FailLater(fake.Delete, broken(infrav1.HypervisorErrorReason, "the VM is locked"))
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.HypervisorErrorReason, Equal("Deleting VM: the VM is locked")))
		rig.Hypervisor.Repair(fake.Delete)
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
	})

	It("leaves a VM of the same name that is not ours alone", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.AddForeign(rig.Key())
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.NameConflictReason, ContainSubstring("no owner mark")))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.NameConflictReason)))
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeTrue())
		Expect(rig.Hypervisor.Calls(fake.Delete)).To(BeZero())
	})
})
