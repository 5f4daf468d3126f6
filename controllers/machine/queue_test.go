package machine_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("A queued creation", func() {
	// add creates machines beside the rig's own machine.
	add := func(ctx context.Context, rig *infratest.Rig, n int) []client.Object {
		GinkgoHelper()
		added := make([]client.Object, 0, n)
		for i := range n {
			machine, infra := rig.Machine(), rig.InfraMachine()
			machine.Name = fmt.Sprintf("new-%d", i)
			infra.Name, machine.Spec.InfrastructureRef.Name = machine.Name, machine.Name
			Expect(rig.Client.Create(ctx, machine)).To(Succeed())
			infra.OwnerReferences = []metav1.OwnerReference{infratest.Owner(machine, "Machine")}
			Expect(rig.Client.Create(ctx, infra)).To(Succeed())
			added = append(added, infra)
		}
		return added
	}
	reasons := func(ctx context.Context, rig *infratest.Rig) func() (map[string]int, error) {
		return func() (map[string]int, error) {
			list := &vspherev1.NovaVSphereMachineList{}
			err := rig.Client.List(ctx, list, client.InNamespace(rig.Namespace))
			found := map[string]int{}
			for i := range list.Items {
				found[condition(infrav1.VirtualMachineProvisionedCondition)(&list.Items[i]).Reason]++
			}
			return found, err
		}
	}
	const many = 60

	It("is not a failure and blocks no deletion", func(ctx SpecContext) {
		rig := up(ctx)
		before := counted()
		rig.Hypervisor.Limit(2)
		rig.Hypervisor.Hold(fake.Create)
		added := add(ctx, rig, many)
		Eventually(reasons(ctx, rig)).WithTimeout(time.Minute).Should(Equal(map[string]int{
			infrav1.ProvisionedReason: 1, infrav1.CreatingReason: 2, infrav1.RequestQueuedReason: many - 2,
		}))
		queued := added[many-1].DeepCopyObject().(*vspherev1.NovaVSphereMachine)
		for _, o := range added {
			Expect(get(ctx, rig, o)()).To(Succeed())
			if m := o.(*vspherev1.NovaVSphereMachine); condition(infrav1.VirtualMachineProvisionedCondition)(m).Reason == infrav1.RequestQueuedReason {
				queued = m
			}
		}
		Expect(queued).To(haveState(metav1.ConditionFalse, infrav1.RequestQueuedReason, Equal("Creating VM: 2 creations are in progress, which is the limit")))
		Expect(rig.Events(ctx, "NovaVSphereMachine", queued.Name)).To(BeEmpty())
		states := counted()
		Expect(states[infrav1.RequestQueuedReason] - before[infrav1.RequestQueuedReason]).To(BeEquivalentTo(many - 2))
		Expect(states[infrav1.CreatingReason] - before[infrav1.CreatingReason]).To(BeEquivalentTo(2))

		By("deleting a running and a queued machine while no creation continues")
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Expect(rig.Client.Delete(ctx, queued)).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Eventually(get(ctx, rig, queued)).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
		Expect(reasons(ctx, rig)()).To(Equal(map[string]int{infrav1.CreatingReason: 2, infrav1.RequestQueuedReason: many - 3}))

		By("letting the queue continue")
		rig.Hypervisor.Release(fake.Create)
		Eventually(reasons(ctx, rig)).WithTimeout(time.Minute).Should(Equal(map[string]int{infrav1.ProvisionedReason: many - 1}))
		Expect(counted()[infrav1.RequestQueuedReason]).To(Equal(before[infrav1.RequestQueuedReason]))
	})

	It("is reconciled with the lowest priority and without a growing delay", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.CreateAll(ctx)).To(Succeed())
		rig.Hypervisor.Fail(fake.Create, &hypervisor.Error{Reason: infrav1.RequestQueuedReason, Waiting: true, Err: errText("full")})
		r := reconcilerOf(rig, nil)
		inLine := ctrl.Result{RequeueAfter: reconcile.QueuedPollInterval, Priority: ptr.To(reconcile.QueuedPriority)}
		Eventually(func() (ctrl.Result, error) { return r.Reconcile(ctx, request(rig)) }).Should(Equal(inLine))
		calls := rig.Hypervisor.Calls(fake.Create)
		for range 3 {
			Expect(r.Reconcile(ctx, request(rig))).To(Equal(inLine))
		}
		Expect(rig.Hypervisor.Calls(fake.Create)).To(Equal(calls+3), "each push of the driver is taken up at once")
	})
})

var _ = Describe("A machine", func() {
	It("names a failure domain that does not exist", func(ctx SpecContext) {
		rig := newRig(ctx)
		site := hypervisor.Endpoint{ID: "fake-1", Version: "fake 1.0"}
		site.FailureDomains = append(site.FailureDomains, clusterv1.FailureDomain{Name: "zone-a"})
		rig.Hypervisor.SetEndpoint(hypervisor.Key{}, site)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		machine := rig.Machine()
		machine.Spec.FailureDomain = "zone-b"
		Expect(rig.CreateMachine(ctx, machine, rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.PlacementNotFoundReason,
			Equal(`Creating VM: the cluster has no failure domain "zone-b"`)))
	})

	It("is not changed while another hypervisor responds instead of its own", func(ctx SpecContext) {
		rig := up(ctx)
		// Cluster API creates no machine before the infrastructure cluster is ready; the rig does.
		cluster := rig.InfraCluster()
		Eventually(get(ctx, rig, cluster)).Should(Satisfy(func(error) bool {
			return cluster.Annotations[infrav1.HypervisorIDAnnotation] == "fake-1"
		}))
		other := hypervisor.Endpoint{ID: "fake-2", Version: "fake 2.0"}
		rig.Hypervisor.SetEndpoint(fake.KeyOf(rig.InfraCluster()), other)
		// The other hypervisor has none of the VMs. If the VM were lost before the site changes, it
		// would be missing on its own hypervisor for a moment, and the machine would be reported as
		// VMNotFound.
		rig.Hypervisor.Remove(rig.Key())
		Eventually(machineOf(ctx, rig)).Should(And(
			haveState(metav1.ConditionFalse, infrav1.HypervisorChangedReason, ContainSubstring(`"fake-2"`)), haveBeenProvisioned()))
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Consistently(machineOf(ctx, rig)).Should(HaveField("Finalizers", ConsistOf(infrav1.MachineFinalizer)))

		By("restoring its own hypervisor")
		rig.Hypervisor.SetEndpoint(fake.KeyOf(rig.InfraCluster()), hypervisor.Endpoint{ID: "fake-1", Version: "fake 1.0"})
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
	})
})

// counted returns the machines by state, as the metrics count them.
func counted() map[string]float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "nova_machines" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "state" {
					found[l.GetValue()] += m.GetGauge().GetValue()
				}
			}
		}
	}
	return found
}
