package hypervisor

import (
	"errors"
	"reflect"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// lifecycle returns the behaviors of a machine that nothing disturbs.
func lifecycle[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	return []behavior[M, C]{
		{name: "a machine gets one VM with its name and a provider ID", check: func(e env) {
			m := e.machine("m")
			vm := e.until(m, stepUp)
			found := e.vm("m")
			e.Expect(vm.ID).To(Equal(found.ID))
			e.Expect(vm.ProviderID).To(MatchRegexp(`^[a-z]+://[0-9a-f-]{36}$`))
			e.Expect(vm.Host).To(Equal(found.Host))
			e.Expect(found.On).To(BeTrue())
			e.Expect(found.NICs).To(HaveLen(1))
			e.Expect(vm.NICs).To(HaveExactElements(HaveField("MAC", found.NICs[0])))
		}},
		{name: "observing a VM that does not change sends no request", check: func(e env) {
			e.options.Quiet = true
			e.restart()
			m := e.up("m")
			// A request after the last step may still be in progress.
			e.Eventually(func() map[string]int {
				e.network.reset()
				for range 20 {
					_, did, err := e.reconcile(e.connector, m, true)
					e.Expect(err).NotTo(HaveOccurred())
					e.Expect(did).To(Equal(stepUp))
				}
				return e.network.count()
			}).Should(BeEmpty())
			e.Expect(e.network.connections()).To(BeZero())
		}},
		{name: "observing changes nothing and can be repeated", check: func(e env) {
			e.options.Quiet = true
			e.restart()
			m := e.machine("m")
			seen := map[hypervisor.State]bool{}
			inspect := func(m M) step {
				vm, did, err := e.reconcile(e.connector, m, true)
				e.Expect(err).NotTo(HaveOccurred())
				if did == stepWait || did == stepUp || did == stepDeleted {
					// No action was started, so each request comes from Observe.
					e.network.reset()
					// The hypervisor may report a change between two of them.
					e.Eventually(func() (bool, error) {
						first, err := e.observe(m)
						again, nextErr := e.observe(m)
						return reflect.DeepEqual(first, again), errors.Join(err, nextErr)
					}).Should(BeTrue(), "the same is observed again")
					e.Expect(e.network.writes()).To(BeZero(), "in state %s: %v", vm.State, e.network.count())
				}
				seen[vm.State] = true
				return did
			}
			e.Eventually(func() step { return inspect(m) }).Should(Equal(stepUp))
			m = deleting(m)
			e.Eventually(func() step { return inspect(m) }).Should(Equal(stepDeleted))
			e.Expect(seen).To(And(HaveKey(hypervisor.Absent), HaveKey(hypervisor.Busy), HaveKey(hypervisor.Running)))
		}},
		{name: "a repeated creation makes one VM", check: func(e env) {
			e.sim.SetDuration(Create, timeout/40)
			m := e.machine("m")
			e.Expect(e.create(m)).To(Succeed())
			e.Expect(e.create(m)).To(Succeed())
			e.Expect(e.observe(m)).To(HaveField("State", hypervisor.Busy))
			e.Expect(e.create(m)).To(Succeed())
			e.until(m, stepUp)
			e.Expect(e.named("m")).To(HaveLen(1))
			e.gone(m)
		}},
		{name: "a deleted VM leaves no disk", check: func(e env) {
			m := e.up("m")
			e.Expect(e.sim.OwnDisks("m")).To(Equal(1))
			e.gone(m)
			e.Eventually(func() int { return e.sim.OwnDisks("m") }).Should(BeZero())
		}},
		{name: "deleting a VM that does not exist succeeds", check: func(e env) {
			m := deleting(e.machine("m"))
			d := e.driver(m)
			e.until(m, stepDeleted)
			e.network.reset()
			e.Expect(d.Delete(e.ctx(), m)).To(Succeed())
			e.Expect(d.Shutdown(e.ctx(), m)).To(Or(Succeed(), HaveField("Reason", infrav1.GuestUnreachableReason)))
			e.Expect(e.network.writes()).To(BeZero())
		}},
	}
}
