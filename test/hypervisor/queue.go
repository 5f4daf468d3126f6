package hypervisor

import (
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// queue returns the behaviors of many machines.
func queue[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	slow := SimulatorOptions{Creation: time.Second}
	// limited restarts the manager with one creation at a time.
	limited := func(e env) {
		e.options.MaxCreations = 1
		e.restart()
	}
	queued := func(e env, m M) error {
		err := e.create(m)
		e.Expect(err).To(HaveField("Reason", infrav1.RequestQueuedReason))
		e.Expect(hypervisor.IsWaiting(err)).To(BeTrue())
		e.Expect(e.named(m.GetName())).To(BeEmpty())
		return err
	}
	return []behavior[M, C]{
		{name: "a creation over the limit is queued and delivered later", options: slow, check: func(e env) {
			limited(e)
			first, second := e.machine("first"), e.machine("second")
			e.Expect(e.create(first)).To(Succeed())
			e.Expect(queued(e, second)).To(HaveOccurred())
			e.until(first, stepUp)
			e.delivered(e.connector.Changes(), "second")
			e.until(second, stepUp)
		}},
		{name: "the queue has the order of the requests", options: slow, check: func(e env) {
			limited(e)
			first, second, third := e.machine("first"), e.machine("second"), e.machine("third")
			e.Expect(e.create(first)).To(Succeed())
			for range 2 {
				e.Expect(queued(e, second)).To(MatchError(ContainSubstring("number 1 in the queue")))
				e.Expect(queued(e, third)).To(MatchError(ContainSubstring("number 2 in the queue")))
			}
		}},
		{name: "a queued machine that is deleted leaves the queue", options: slow, check: func(e env) {
			limited(e)
			first, second, third := e.machine("first"), e.machine("second"), e.machine("third")
			e.Expect(e.create(first)).To(Succeed())
			e.Expect(queued(e, second)).To(HaveOccurred())
			e.Expect(queued(e, third)).To(HaveOccurred())
			e.becomes(deleting(second), hypervisor.Absent)
			e.until(first, stepUp)
			e.delivered(e.connector.Changes(), "third")
			e.until(third, stepUp)
			e.Expect(e.named("second")).To(BeEmpty())
		}},
		{name: "a failed creation leaves the queue", options: slow, check: func(e env) {
			limited(e)
			e.sim.Fail(Create)
			failing, next := e.machine("failing"), e.machine("next")
			e.Expect(e.create(failing)).To(Succeed())
			e.Expect(queued(e, next)).To(HaveOccurred())
			e.Eventually(func() error { _, err := e.observe(failing); return err }).Should(HaveOccurred())
			e.delivered(e.connector.Changes(), "next")
			e.until(next, stepUp)
			e.until(failing, stepUp)
		}},
		{name: "a creation that is rejected leaves the queue", options: slow, check: func(e env) {
			limited(e)
			e.sim.Reject(Create)
			m := e.machine("m")
			e.Eventually(func() error { return e.create(m) }).Should(HaveOccurred())
			e.until(e.machine("next"), stepUp)
		}},
		{name: "deletions do not wait for queued creations", options: SimulatorOptions{Creation: 100 * time.Millisecond}, check: func(e env) {
			old := e.machines("old", 4)
			_, err := e.controlled(e.connector, nil, old...)
			e.Expect(err).NotTo(HaveOccurred())
			for i := range old {
				old[i] = deleting(old[i])
			}
			limited(e)
			e.sim.SetDuration(Create, timeout)
			all := e.machines("new", 12)
			e.Expect(e.create(all[0])).To(Succeed())
			for _, m := range all[1:] {
				e.Expect(queued(e, m)).To(HaveOccurred())
			}
			_, err = e.controlled(e.connector, nil, old...)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(e.named("new-1")).To(BeEmpty(), "the creations are still queued")
		}},
		{name: "a restarted manager reads all VMs with the same number of requests", check: func(e env) {
			restarted := func(machines []M) int {
				_, err := e.controlled(e.connector, nil, machines...)
				e.Expect(err).NotTo(HaveOccurred())
				e.options.Quiet = true
				e.connector.Close()
				e.network.reset()
				e.connector = e.connect()
				e.Eventually(func() (up int) {
					for _, m := range machines {
						if vm, err := e.observe(m); err == nil && vm.State == hypervisor.Running {
							up++
						}
					}
					return up
				}).Should(Equal(len(machines)))
				guests := traits(e.adapter).GuestRequest
				return len(slices.DeleteFunc(e.network.requests(), func(r request) bool { return guests != "" && strings.Contains(r.name, guests) }))
			}
			few := restarted(e.machines("m", 2))
			many := restarted(e.machines("m", 12))
			e.Expect(many).To(BeNumerically("<=", few+4), "%v", e.network.requests())
		}},
		{name: "many callers cause one login", check: func(e env) {
			e.restart()
			e.network.reset()
			machines := e.machines("m", 30)
			for i := range machines {
				machines[i] = deleting(machines[i])
			}
			failed, err := e.controlled(e.connector, nil, machines...)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(failed).To(BeZero())
			e.Expect(e.network.writes()).To(Equal(1), "%v", e.network.count())
		}},
		{name: "the machines of a group are in one anti-affinity group", check: func(e env) {
			machines := e.grouped(3)
			_, err := e.controlled(e.connector, nil, machines...)
			e.Expect(err).NotTo(HaveOccurred())
			e.Eventually(func() [][]string {
				for _, m := range machines {
					_, _, _ = e.reconcile(e.connector, m, true)
				}
				return e.sim.Groups()
			}).Should(Equal([][]string{{"m-0", "m-1", "m-2"}}))
			e.gone(machines[2])
			e.Eventually(e.sim.Groups).Should(Equal([][]string{{"m-0", "m-1"}}))
		}},
		{name: "the anti-affinity group is removed with its machines", check: func(e env) {
			machines := e.grouped(2)
			_, err := e.controlled(e.connector, nil, machines...)
			e.Expect(err).NotTo(HaveOccurred())
			e.Eventually(func() [][]string {
				for _, m := range machines {
					_, _, _ = e.reconcile(e.connector, m, true)
				}
				return e.sim.Groups()
			}).Should(Equal([][]string{{"m-0", "m-1"}}))
			e.gone(machines[0])
			e.gone(machines[1])
			e.Eventually(e.sim.Groups).Should(BeEmpty())
		}},
		{name: "a machine without anti-affinity leaves its group", check: func(e env) {
			machines := e.grouped(3)
			groupsBecome := func(want [][]string) {
				e.Eventually(func() [][]string {
					for _, m := range machines {
						_, _, _ = e.reconcile(e.connector, m, true)
					}
					return e.sim.Groups()
				}).Should(Equal(want))
			}
			groupsBecome([][]string{{"m-0", "m-1", "m-2"}})
			spec, _ := machines[0].Common()
			spec.AntiAffinity = infrav1.AntiAffinityNone
			groupsBecome([][]string{{"m-1", "m-2"}})
			e.Expect(e.named("m-0")).To(HaveLen(1))
		}},
	}
}

// grouped returns machines of one group that are kept on different hosts if
// possible.
func (e *environment[M, C]) grouped(n int) []M {
	all := e.machines("m", n)
	for _, m := range all {
		spec, _ := m.Common()
		spec.AntiAffinity = infrav1.AntiAffinityPreferred
		m.GetLabels()[clusterv1.MachineDeploymentNameLabel] = "grouped"
	}
	return all
}
