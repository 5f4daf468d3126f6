package hypervisor

import (
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// failures returns the behaviors after operations that fail or are slow.
func failures[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	missing := func(e env, f Fields, reason string) {
		m := e.machine("m", f)
		err := e.fails(m, reason)
		e.Expect(err).To(MatchError(ContainSubstring("none")))
		e.Expect(hypervisor.IsTerminal(err)).To(BeFalse(), "it can be fixed in the hypervisor")
		for _, vm := range e.named("m") {
			e.Expect(vm.On).To(BeFalse())
		}
		e.gone(m)
	}
	return []behavior[M, C]{
		{name: "a template that is missing can be added later", check: func(e env) {
			e.sim.RenameTemplate(e.sim.DefaultTemplate(), "renamed-template")
			m := e.machine("m")
			err := e.fails(m, infrav1.TemplateNotFoundReason)
			e.Expect(err).To(MatchError(ContainSubstring(e.sim.DefaultTemplate())))
			e.Expect(hypervisor.IsTerminal(err)).To(BeFalse())
			e.Expect(e.named("m")).To(BeEmpty())
			e.sim.RenameTemplate("renamed-template", e.sim.DefaultTemplate())
			e.until(m, stepUp)
		}},
		{name: "a network that is missing is named", check: func(e env) {
			missing(e, Fields{Network: "none/none"}, infrav1.PlacementNotFoundReason)
		}},
		{name: "a storage that is missing is named", check: func(e env) {
			missing(e, Fields{Storage: "none"}, infrav1.PlacementNotFoundReason)
		}},
		{name: "a full storage is reported until it has space", check: func(e env) {
			e.sim.SetFull(true)
			m := e.machine("m")
			err := e.fails(m, infrav1.InsufficientResourcesReason)
			e.Expect(hypervisor.IsTerminal(err)).To(BeFalse())
			e.becomes(m, hypervisor.Absent)
			e.sim.SetFull(false)
			e.until(m, stepUp)
			e.Expect(e.named("m")).To(HaveLen(1))
		}},
		{name: "a failed creation is reported once and can be repeated", check: func(e env) {
			e.sim.Fail(Create)
			m := e.machine("m")
			e.Expect(e.create(m)).To(Succeed())
			e.reportedOnce(m)
			e.becomes(m, hypervisor.Absent)
			e.until(m, stepUp)
			e.Expect(e.named("m")).To(HaveLen(1))
			e.Expect(e.sim.OwnDisks("m")).To(Equal(1))
		}},
		{name: "a failed power-on is reported once and can be repeated", check: func(e env) {
			m := e.up("m")
			e.sim.PowerOffVM(e.vm("m").ID)
			e.becomes(m, hypervisor.Stopped)
			e.sim.Fail(PowerOn)
			e.Expect(e.driver(m).Start(e.ctx(), m)).To(Succeed())
			e.reportedOnce(m)
			e.becomes(m, hypervisor.Stopped)
			e.until(m, stepUp)
		}},
		{name: "a power-off without an effect is repeated", check: func(e env) {
			m := e.up("m")
			e.sim.Fail(PowerOff)
			e.gone(m)
		}},
		{name: "a creation that is rejected for a moment can be repeated", check: func(e env) {
			e.sim.Reject(Create)
			m := e.machine("m")
			var rejected error
			e.Eventually(func(g Gomega) {
				_, _, rejected = e.reconcile(e.connector, m, true)
				g.Expect(rejected).To(HaveOccurred())
			}).Should(Succeed())
			e.Expect(hypervisor.IsTerminal(rejected)).To(BeFalse())
			e.until(m, stepUp)
		}},
		{name: "a deletion that is rejected for a moment can be repeated", check: func(e env) {
			m := e.up("m")
			e.sim.Reject(PowerOff)
			e.sim.Reject(Destroy)
			e.gone(m)
		}},
		{name: "a creation without permission is reported until it is allowed", check: func(e env) {
			e.sim.SetAllowed(Create, false)
			m := e.machine("m")
			e.Expect(e.fails(m, infrav1.PermissionDeniedReason)).To(HaveOccurred())
			e.Expect(e.named("m")).To(BeEmpty())
			e.sim.SetAllowed(Create, true)
			e.until(m, stepUp)
		}},
		{name: "a power-on without permission is reported until it is allowed", check: func(e env) {
			m := e.up("m")
			e.sim.PowerOffVM(e.vm("m").ID)
			e.sim.SetAllowed(PowerOn, false)
			e.Expect(e.fails(m, infrav1.PermissionDeniedReason)).To(HaveOccurred())
			e.becomes(m, hypervisor.Stopped)
			e.sim.SetAllowed(PowerOn, true)
			e.until(m, stepUp)
		}},
		{name: "a power-off without permission is reported until it is allowed", check: func(e env) {
			m := e.up("m")
			e.sim.SetAllowed(PowerOff, false)
			e.Expect(e.fails(deleting(m), infrav1.PermissionDeniedReason)).To(HaveOccurred())
			e.becomes(deleting(m), hypervisor.Running)
			e.sim.SetAllowed(PowerOff, true)
			e.gone(m)
		}},
		{name: "a deletion without permission is reported until it is allowed", check: func(e env) {
			m := e.up("m")
			e.sim.SetAllowed(Destroy, false)
			e.Expect(e.fails(deleting(m), infrav1.PermissionDeniedReason)).To(HaveOccurred())
			e.becomes(deleting(m), hypervisor.Stopped)
			e.Expect(e.named("m")).To(HaveLen(1))
			e.sim.SetAllowed(Destroy, true)
			e.gone(m)
		}},
		{name: "an address that the VM of another machine has is in use", check: func(e env) {
			static := func(name, address string) M {
				return e.machine(name, Fields{Addressing: infrav1.InterfaceAddressing{Addresses: []string{address}}})
			}
			orphan := static("orphan", "10.1.2.3/24")
			e.noAddresses = true
			e.Eventually(func(g Gomega) {
				_, _, err := e.reconcile(e.connector, orphan, true)
				g.Expect(err).NotTo(HaveOccurred())
				found := e.named("orphan")
				g.Expect(found).To(HaveLen(1))
				g.Expect(found[0].On).To(BeTrue())
			}).Should(Succeed())
			e.sim.SetAddresses(e.vm("orphan").ID, netip.MustParsePrefix("10.1.2.3/24"))
			e.until(orphan, stepUp)
			e.restart() // the manager of a restored backup does not know the machine
			id := e.vm("orphan").ID

			pooled := e.machine("pooled", Fields{Addressing: infrav1.InterfaceAddressing{AddressesFromPools: []ipamv1.IPPoolReference{{Name: "pool"}}}})
			taken := createOptions
			taken.Interfaces = [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("10.1.2.3/24")}}}
			for _, c := range []struct {
				machine M
				options hypervisor.CreateOptions
			}{{static("static", "10.1.2.3/24"), createOptions}, {pooled, taken}} {
				var err error
				e.Eventually(func() string {
					err = e.record(e.driver(c.machine).Create(e.ctx(), c.machine, c.options))
					return hypervisor.ReasonFor(err, "")
				}).Should(Equal(infrav1.AddressInUseReason))
				e.Expect(err).To(MatchError(And(ContainSubstring(`the VM "orphan" (`+id+`)`), ContainSubstring("the address 10.1.2.3"))))
				e.Expect(hypervisor.IsTerminal(err)).To(BeFalse())
				e.Expect(e.named(c.machine.GetName())).To(BeEmpty())
			}
			e.noAddresses = false
			e.until(static("free", "10.1.2.4/24"), stepUp)
		}},
		{name: "a slow creation is busy and has a message", options: SimulatorOptions{Creation: 2 * time.Second}, check: func(e env) {
			m := e.machine("m")
			e.Expect(e.create(m)).To(Succeed())
			e.Consistently(func(g Gomega) {
				vm, err := e.observe(m)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(vm.State).To(Equal(hypervisor.Busy))
				g.Expect(strings.TrimSpace(vm.Message)).NotTo(BeEmpty())
			}, "500ms", interval).Should(Succeed())
			e.until(m, stepUp)
		}},
		{name: "a creation in progress survives a restart of the manager", options: SimulatorOptions{Creation: 2 * time.Second}, check: func(e env) {
			m := e.machine("m")
			e.Expect(e.create(m)).To(Succeed())
			e.restart()
			e.network.reset()
			for _, seen := range []M{deleting(m), m} {
				e.Eventually(func(g Gomega) {
					vm, err := e.observe(seen)
					g.Expect(err).NotTo(HaveOccurred())
					e.Expect(vm.State).NotTo(Equal(hypervisor.Absent), "it must not look deleted")
					g.Expect(vm.State).To(Equal(hypervisor.Busy))
				}).Should(Succeed())
			}
			e.until(m, stepUp)
			e.Expect(e.named("m")).To(HaveLen(1))
		}},
		{name: "a machine is deleted while its VM is created", options: SimulatorOptions{Creation: time.Second}, check: func(e env) {
			m := e.machine("m")
			e.Expect(e.create(m)).To(Succeed())
			away := deleting(m)
			e.Expect(e.observe(away)).To(HaveField("State", hypervisor.Busy))
			e.Expect(e.record(e.driver(away).Delete(e.ctx(), away))).To(Or(Succeed(), Satisfy(hypervisor.IsTransient)))
			e.gone(m)
			e.Eventually(func() int { return e.sim.OwnDisks("m") }).Should(BeZero())
			e.Consistently(func() []VM { return e.named("m") }, "500ms", interval).Should(BeEmpty())
		}},
		{name: "machines are created and deleted by events alone", options: SimulatorOptions{Creation: 100 * time.Millisecond}, check: func(e env) {
			machines := e.machines("m", 8)
			failed, err := e.controlled(e.connector, nil, machines...)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(failed).To(BeZero())
			for i, m := range machines {
				e.Expect(e.named(m.GetName())).To(HaveLen(1))
				machines[i] = deleting(m)
			}
			failed, err = e.controlled(e.connector, nil, machines...)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(failed).To(BeZero())
			e.Expect(e.sim.VMs()).To(BeEmpty())
		}},
	}
}

// reportedOnce expects that the failure of the last action is reported, and
// only once.
func (e *environment[M, C]) reportedOnce(m M) {
	e.t.Helper()
	var failure error
	e.Eventually(func() error { _, failure = e.observe(m); return failure }).Should(HaveOccurred())
	e.Expect(hypervisor.ReasonFor(failure, "")).NotTo(BeEmpty(), "%v", failure)
	_, again := e.observe(m)
	e.Expect(again).NotTo(HaveOccurred())
}
