package machine_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("The life of a machine", func() {
	It("leads from waiting for its cluster to a running VM and its deletion", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		before := observations()

		By("waiting for the infrastructure, without a call to the hypervisor")
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		machine := rig.Machine()
		machine.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "NovaConfig", Name: "tenant-0",
		}}
		machine.Spec.FailureDomain = "zone-a"
		Expect(rig.CreateMachine(ctx, machine, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.WaitingForInfrastructureReason, Not(BeEmpty())),
			HaveField("Finalizers", ConsistOf(infrav1.MachineFinalizer))))
		Expect(rig.Hypervisor.Calls(fake.Connect)).To(BeZero())

		By("waiting for the bootstrap data")
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.WaitingForBootstrapDataReason, Not(BeEmpty())))
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())

		By("creating")
		rig.Hypervisor.Hold(fake.Create)
		patched := machine.DeepCopy()
		patched.Spec.Bootstrap.DataSecretName = ptr.To(infratest.BootstrapName)
		Expect(rig.Client.Patch(ctx, patched, client.MergeFrom(machine))).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.CreatingReason, Not(BeEmpty())))
		Expect(rig.Hypervisor.CreateOptions(rig.Key())).To(Equal(hypervisor.CreateOptions{
			UserData: []byte("#cloud-config"), Format: "cloud-config", Zone: "zone-a",
		}))

		By("powering on")
		rig.Hypervisor.Hold(fake.Start)
		rig.Hypervisor.Release(fake.Create)
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Start) }).Should(Equal(1))
		Eventually(machineOf(ctx, rig)).Should(HaveField("Status.VMID", "vm-1"), "to find a VM that does not start")
		Expect(machineOf(ctx, rig)()).NotTo(beProvisioned())
		rig.Hypervisor.Release(fake.Start)
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), HaveField("Status.FailureDomain", "zone-a")))
		Eventually(eventsOf(ctx, rig)).Should(ConsistOf(normal("Created"), normal("Started"), normal("Provisioned")))

		By("staying as it is, without another write")
		Eventually(func(g Gomega) {
			synced, err := machineOf(ctx, rig)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(condition(clusterv1.ReadyCondition)(synced).ObservedGeneration).To(Equal(synced.Generation))
			g.Consistently(machineOf(ctx, rig)).Should(HaveField("ResourceVersion", synced.ResourceVersion))
		}).Should(Succeed())

		By("deleting")
		rig.Hypervisor.Hold(fake.Delete)
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.DeletingReason, Not(BeEmpty())))
		rig.Hypervisor.Release(fake.Delete)
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
		Expect(rig.Hypervisor.Calls(fake.Create)).To(Equal(1))
		Expect(rig.Hypervisor.Calls(fake.Start)).To(Equal(1))
		Expect(rig.Hypervisor.Calls(fake.Delete)).To(Equal(1))
		Eventually(eventsOf(ctx, rig)).Should(ContainElements(normal("Deleting"), normal("Deleted")))

		after := observations()
		for _, action := range []string{"create", "start", "destroy"} {
			Expect(after[action]-before[action]).To(Equal(1.0), action)
		}
		Expect(after["provisioned"] - before["provisioned"]).To(Equal(1.0))
	})

	It("waits for an address and reports it", func(ctx SpecContext) {
		rig := up(ctx)
		rig.Hypervisor.SetAddresses(rig.Key())
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.WaitingForAddressesReason, Not(BeEmpty())),
			haveBeenProvisioned()))
		rig.Hypervisor.SetAddresses(rig.Key(), clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "192.0.2.77"})
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(),
			HaveField("Status.Addresses", ConsistOf(HaveField("Address", "192.0.2.77")))))
	})

	It("powers a VM on again that was powered off outside", func(ctx SpecContext) {
		rig := up(ctx)
		rig.Hypervisor.Hold(fake.Start)
		rig.Hypervisor.PowerOff(rig.Key())
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.PoweredOffReason)))
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.PoweredOffReason, Not(BeEmpty())),
			haveBeenProvisioned()))
		rig.Hypervisor.Release(fake.Start)
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		Expect(rig.Hypervisor.Created(rig.Key())).To(Equal(1))
	})

	It("reports a VM that is lost and never creates another", func(ctx SpecContext) {
		rig := up(ctx)
		rig.Hypervisor.Remove(rig.Key())
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.VMNotFoundReason, ContainSubstring("delete the Machine")),
			haveBeenProvisioned(),
			HaveField("Spec.ProviderID", Not(BeEmpty()))))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.VMNotFoundReason)))
		Consistently(func() int { return rig.Hypervisor.Calls(fake.Create) }).Should(Equal(1))

		By("releasing it after its deletion")
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
	})

	It("refuses a VM whose identity was changed", func(ctx SpecContext) {
		rig := up(ctx)
		was, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		rig.Hypervisor.SetProviderID(rig.Key(), "fake://other")
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.HypervisorErrorReason, ContainSubstring("fake://other")),
			HaveField("Spec.ProviderID", was.Spec.ProviderID)))
	})

	It("recomputes a status that was dropped", func(ctx SpecContext) {
		rig := up(ctx)
		was, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			bare, err := machineOf(ctx, rig)()
			bare.Status = infrav1.MachineStatus{}
			return errors.Join(err, rig.Client.Status().Update(ctx, bare))
		}).Should(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), HaveField("Status.Addresses", was.Status.Addresses)))
		Expect(rig.Hypervisor.Created(rig.Key())).To(Equal(1))
	})

	It("takes over a machine that was moved while its hypervisor is out of reach", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.Fail(fake.Connect, broken(infrav1.EndpointUnreachableReason, "dial tcp: connection refused"))
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		moved := rig.InfraMachine()
		moved.Spec.ProviderID = "fake://moved"
		Expect(rig.CreateMachine(ctx, rig.Machine(), moved)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.EndpointUnreachableReason, ContainSubstring("connection refused")),
			haveBeenProvisioned()))

		By("reporting that its VM does not exist instead of creating one")
		rig.Hypervisor.Repair(fake.Connect)
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.VMNotFoundReason, Not(BeEmpty())))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeZero())
	})

	It("does nothing while paused", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		cluster := rig.Cluster()
		cluster.Spec.Paused = ptr.To(true)
		Expect(rig.CreateCluster(ctx, cluster, rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Expect(rig.CreateMachine(ctx, rig.Machine(), rig.InfraMachine())).To(Succeed())
		isPaused := func(m *vspherev1.NovaVSphereMachine) bool { return conditions.IsTrue(m, clusterv1.PausedCondition) }
		Eventually(machineOf(ctx, rig)).Should(Satisfy(isPaused))
		Consistently(func() int { return rig.Hypervisor.Calls(fake.Connect) }).Should(BeZero())

		By("continuing after the Cluster is resumed")
		Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		cluster.Spec.Paused = ptr.To(false)
		Expect(rig.Client.Update(ctx, cluster)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), Not(Satisfy(isPaused))))

		By("keeping the VM while the machine itself is paused")
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		before := m.DeepCopy()
		m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(rig.Client.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(Satisfy(isPaused))
		Expect(rig.Client.Delete(ctx, m)).To(Succeed())
		Consistently(func() bool { return rig.Hypervisor.Exists(rig.Key()) }).Should(BeTrue())
		Expect(machineOf(ctx, rig)()).To(HaveField("Finalizers", ConsistOf(infrav1.MachineFinalizer)))
	})

	It("respects its watch label", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{WatchFilter: "blue"})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Consistently(machineOf(ctx, rig)).Should(HaveField("Finalizers", BeEmpty()))
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		before := m.DeepCopy()
		m.Labels[clusterv1.WatchLabel] = "blue"
		Expect(rig.Client.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
	})
})

// observations returns the metrics that were counted so far: accepted actions by name, and provisioned
// machines.
func observations() map[string]float64 {
	GinkgoHelper()
	seen := map[string]float64{}
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case family.GetName() == "nova_machine_provision_seconds":
				seen["provisioned"] += float64(m.GetHistogram().GetSampleCount())
			case family.GetName() == "nova_machine_actions_total" && labels["result"] == "accepted":
				seen[labels["action"]] += m.GetCounter().GetValue()
			}
		}
	}
	return seen
}
