package machine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("A failure", func() {
	type failure struct {
		verb   fake.Verb
		later  bool
		reason string
		text   string
		want   string
	}
	DescribeTable("becomes a condition and one event, and recovers", func(ctx SpecContext, f failure) {
		rig := newRig(ctx)
		fail := rig.Hypervisor.Fail
		if f.later {
			fail = rig.Hypervisor.FailLater
		}
		fail(f.verb, broken(f.reason, f.text))
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, f.reason, Equal(f.want)))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(And(warning(f.reason), HaveField("Note", f.want))))

		By("trying again without repeating the event or another condition")
		tried := rig.Hypervisor.Calls(f.verb)
		Eventually(func(g Gomega) {
			g.Expect(machineOf(ctx, rig)()).To(haveState(metav1.ConditionFalse, f.reason, Equal(f.want)))
			g.Expect(rig.Hypervisor.Calls(f.verb)).To(BeNumerically(">", tried))
		}).Should(Succeed())
		Eventually(eventsOf(ctx, rig)).Should(WithTransform(warnings, Equal(1)))

		By("fixing the cause")
		rig.Hypervisor.Repair(f.verb)
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		Expect(rig.Hypervisor.Created(rig.Key())).To(Equal(1))
	},
		Entry("the password is wrong", failure{
			verb: fake.Connect, reason: infrav1.CredentialsInvalidReason,
			text: "the vCenter refused the user name or password.", want: "Connecting to hypervisor: the vCenter refused the user name or password",
		}),
		Entry("the endpoint is down", failure{
			verb: fake.Connect, reason: infrav1.EndpointUnreachableReason,
			text: "connection refused", want: "Connecting to hypervisor: connection refused",
		}),
		Entry("the inventory cannot be read", failure{
			verb: fake.Observe, reason: infrav1.EndpointUnreachableReason,
			text: "no answer", want: "Observing VM: no answer",
		}),
		Entry("the template does not exist", failure{
			verb: fake.Create, reason: infrav1.TemplateNotFoundReason,
			text: `template "x" does not exist`, want: `Creating VM: template "x" does not exist`,
		}),
		Entry("the datastore is full, which is known only later", failure{
			verb: fake.Create, later: true, reason: infrav1.InsufficientResourcesReason,
			text: "the datastore is full", want: "Creating VM: the datastore is full",
		}),
		Entry("the VM does not power on", failure{
			verb: fake.Start, later: true, reason: infrav1.InsufficientResourcesReason,
			text: "no host has room", want: "Powering on VM: no host has room",
		}),
		Entry("the failure has no known cause", failure{
			verb: fake.Create, reason: infrav1.HypervisorErrorReason,
			text: "a general system error occurred\nfault.Summary", want: "Creating VM: a general system error occurred; fault.Summary",
		}),
	)

	It("whose message differs each time waits for its retry too", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.Fail(fake.Observe, &changing{})
		Expect(rig.Run(infratest.Options{NoRetry: true})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Eventually(available(ctx, rig)).Should(Equal(metav1.ConditionTrue))
		Expect(rig.CreateMachine(ctx, rig.Machine(), rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.HypervisorErrorReason, HavePrefix("Observing VM: failure ")))
		Eventually(rig.Quiet(fake.Observe)).WithPolling(time.Second).Should(BeTrue())
	})

	It("of an endpoint whose message differs each time does not flap", func(ctx SpecContext) {
		rig := up(ctx)
		fail := func(n int) {
			rig.Hypervisor.Fail(fake.Observe, broken(infrav1.EndpointUnreachableReason, fmt.Sprintf("read tcp 192.0.2.1:%d: timeout", 40000+n)))
		}
		fail(0)
		rig.Hypervisor.SetAddresses(rig.Key()) // triggers a reconcile
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.EndpointUnreachableReason, ContainSubstring("40000")))
		calls := rig.Hypervisor.Calls(fake.Observe)
		// By the second retry the reconciler's cache knows the condition.
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Observe) }).Should(BeNumerically(">=", calls+2))
		calls = rig.Hypervisor.Calls(fake.Observe)
		for n := range 10 {
			fail(n + 1)
			rig.Hypervisor.SetAddresses(rig.Key())
			Eventually(func() int { return rig.Hypervisor.Calls(fake.Observe) }).Should(BeNumerically(">=", calls+n+1))
		}
		Expect(machineOf(ctx, rig)()).To(haveState(metav1.ConditionFalse, infrav1.EndpointUnreachableReason, ContainSubstring("40000")))
		Eventually(eventsOf(ctx, rig)).Should(WithTransform(warnings, Equal(1)))
	})

	It("that is temporary does not change the reported state", func(ctx SpecContext) {
		rig := up(ctx)
		// There must be a reported state that the reconcilers have in their cache.
		Eventually(available(ctx, rig)).Should(Equal(metav1.ConditionTrue))
		Eventually(rig.Quiet(fake.Connect)).WithPolling(time.Second).Should(BeTrue())
		Eventually(rig.Quiet(fake.Inspect)).WithPolling(time.Second).Should(BeTrue())
		slow := &hypervisor.Error{Reason: infrav1.EndpointUnreachableReason, Transient: true, Err: errText("no answer in time")}
		rig.Hypervisor.Fail(fake.Connect, slow)
		rig.Hypervisor.Fail(fake.Inspect, slow)
		calls, inspected := rig.Hypervisor.Calls(fake.Connect), rig.Hypervisor.Calls(fake.Inspect)
		rig.Hypervisor.SetAddresses(rig.Key()) // triggers a reconcile
		rig.Hypervisor.NotifyEndpoint(hypervisor.Key{Namespace: rig.Namespace, Name: rig.InfraCluster().Name})
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Connect) }).Should(BeNumerically(">=", calls+2))
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Inspect) }).Should(BeNumerically(">=", inspected+2))
		Expect(machineOf(ctx, rig)()).To(beProvisioned())
		Expect(available(ctx, rig)()).To(Equal(metav1.ConditionTrue))
		Expect(eventsOf(ctx, rig)()).To(WithTransform(warnings, BeZero()))
	})

	It("that is terminal is tried again for an event only", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.Fail(fake.Create, &hypervisor.Error{
			Reason: infrav1.HypervisorErrorReason, Terminal: true, Err: errText("the user data is too large"),
		})
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Eventually(available(ctx, rig)).Should(Equal(metav1.ConditionTrue))
		Expect(rig.CreateMachine(ctx, rig.Machine(), rig.InfraMachine())).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.HypervisorErrorReason, ContainSubstring("too large")))
		// Writing the condition that shows the failure is an event, too.
		Eventually(rig.Quiet(fake.Create)).WithPolling(3 * time.Second).Should(BeTrue())
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeNumerically("<=", 2))
	})

	It("that is terminal ends after its cause is fixed during the back-off", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.Fail(fake.Create, &hypervisor.Error{
			Reason: infrav1.PlacementNotFoundReason, Terminal: true, Err: errText(`there is no resource pool "x"`),
		})
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Eventually(available(ctx, rig)).Should(Equal(metav1.ConditionTrue))
		Expect(rig.CreateMachine(ctx, rig.Machine(), rig.InfraMachine())).To(Succeed())
		cluster := rig.InfraCluster()
		fix := func() {
			Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			before := cluster.DeepCopy()
			cluster.Spec.Placement.ResourcePool = fmt.Sprintf("pool-%d", rig.Hypervisor.Calls(fake.Create))
			Expect(rig.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		}
		for tries := range 3 { // and the delay between attempts grows
			Eventually(func() int { return rig.Hypervisor.Calls(fake.Create) }).Should(BeNumerically(">", tries))
			Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.PlacementNotFoundReason, Not(BeEmpty())))
			if tries == 2 {
				rig.Hypervisor.Repair(fake.Create)
			}
			fix()
		}
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
	})

	DescribeTable("of the bootstrap data names the missing object", func(ctx SpecContext, data map[string]string, want string) {
		rig := newRig(ctx)
		Expect(rig.CreateAll(ctx)).To(Succeed())
		secret := rig.Secret(infratest.BootstrapName, nil)
		Expect(rig.Client.Delete(ctx, secret)).To(Succeed())
		if data != nil {
			Expect(rig.Client.Create(ctx, rig.Secret(infratest.BootstrapName, data))).To(Succeed())
		}
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.WaitingForBootstrapDataReason, Equal(want)))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeZero())
	},
		Entry("no Secret", nil, `Reading bootstrap data: Secret "tenant-0-bootstrap" does not exist`),
		Entry("no value", map[string]string{"format": "ignition"}, `Reading bootstrap data: Secret "tenant-0-bootstrap" has no data under the key value`),
	)

	It("of the credentials ends immediately after the Secret is fixed", func(ctx SpecContext) {
		rig := newRig(ctx)
		refused := broken(infrav1.CredentialsInvalidReason, "wrong password")
		rig.Hypervisor.Fail(fake.Connect, refused)
		rig.Hypervisor.Fail(fake.Inspect, refused)
		Expect(rig.Run(infratest.Options{NoRetry: true})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.CredentialsInvalidReason, ContainSubstring("wrong password")))
		Eventually(available(ctx, rig)).Should(Equal(metav1.ConditionFalse))
		Eventually(rig.Quiet(fake.Connect)).WithPolling(time.Second).Should(BeTrue())
		rig.Hypervisor.Repair(fake.Connect)
		rig.Hypervisor.Repair(fake.Inspect)
		Consistently(machineOf(ctx, rig)).ShouldNot(beProvisioned())

		secret := rig.Secret(infratest.CredentialsName, map[string]string{"username": "nova", "password": "right"})
		Expect(rig.Client.Update(ctx, secret)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
	})
})

// changing is a failure with a different message each time, such as a task's number.
type changing struct{ count atomic.Int32 }

func (c *changing) Error() string { return fmt.Sprintf("failure %d", c.count.Add(1)) }

// available polls the status of the cluster's HypervisorAvailable condition.
func available(ctx context.Context, rig *infratest.Rig) func() (metav1.ConditionStatus, error) {
	return func() (metav1.ConditionStatus, error) {
		cluster := rig.InfraCluster()
		err := rig.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
		if c := conditions.Get(cluster, infrav1.HypervisorAvailableCondition); c != nil {
			return c.Status, err
		}
		return metav1.ConditionUnknown, err
	}
}

// warnings counts warning events.
func warnings(events []infratest.Event) int {
	n := 0
	for _, e := range events {
		if e.Type == "Warning" {
			n++
		}
	}
	return n
}
