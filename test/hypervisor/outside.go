package hypervisor

import (
	"net/netip"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// outside returns the behaviors after changes by users of the hypervisor.
func outside[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	// restarts expects that a VM is started again that is stopped by hand.
	restarts := func(e env, stop func(id string)) {
		m := e.up("m")
		drain(e.connector.Changes())
		stop(e.vm("m").ID)
		e.delivered(e.connector.Changes(), "m")
		e.until(m, stepStart)
		e.until(m, stepUp)
		e.Expect(e.vm("m").On).To(BeTrue())
	}
	return []behavior[M, C]{
		{name: "a VM that a user powers off is started again", check: func(e env) { restarts(e, e.sim.PowerOffVM) }},
		{name: "a VM whose guest shuts down is started again", check: func(e env) { restarts(e, e.sim.StopGuest) }},
		{name: "a VM that a user suspends is started again", check: func(e env) { restarts(e, e.sim.SuspendVM) }},
		{name: "a repeated start sends one request", check: func(e env) {
			m := e.up("m")
			e.sim.PowerOffVM(e.vm("m").ID)
			e.becomes(m, hypervisor.Stopped)
			e.network.reset()
			d := e.driver(m)
			e.Expect(d.Start(e.ctx(), m)).To(Succeed())
			e.Expect(d.Start(e.ctx(), m)).To(Succeed())
			e.Expect(e.network.writes()).To(Equal(1), "%v", e.network.count())
			e.until(m, stepUp)
		}},
		{name: "a VM that a user deletes is reported as missing", check: func(e env) {
			m := e.up("m")
			drain(e.connector.Changes())
			id := e.vm("m").ID
			e.sim.PowerOffVM(id)
			e.sim.DestroyVM(id)
			e.delivered(e.connector.Changes(), "m")
			e.becomes(m, hypervisor.Absent)
			e.until(m, stepMissing)
			e.restart()
			e.until(m, stepMissing)
			e.until(deleting(m), stepDeleted)
		}},
		{name: "a VM that a user renames still belongs to its machine", check: func(e env) {
			m := e.up("m")
			e.sim.RenameVM(e.vm("m").ID, "renamed")
			e.Consistently(func() (hypervisor.State, error) {
				vm, err := e.observe(m)
				return vm.State, err
			}, "500ms", interval).Should(Or(Equal(hypervisor.Running), Equal(hypervisor.Busy)))
			e.until(m, stepUp)
			e.until(deleting(m), stepDeleted)
			e.Expect(e.sim.VMs()).To(BeEmpty())
		}},
		{name: "a VM that moves to another host is reported there", check: func(e env) {
			m := e.up("m")
			before := e.vm("m")
			drain(e.connector.Changes())
			e.network.reset()
			e.sim.MigrateVM(before.ID)
			e.delivered(e.connector.Changes(), "m")
			after := e.vm("m").Host
			e.Expect(after).NotTo(Equal(before.Host))
			e.Eventually(func() string {
				vm, err := e.observe(m)
				e.Expect(err).NotTo(HaveOccurred())
				e.Expect(vm.State).To(Or(Equal(hypervisor.Running), Equal(hypervisor.Busy)))
				return vm.Host
			}).Should(Equal(after))
			e.Expect(e.network.writes()).To(BeZero())
		}},
		{name: "a guest that reports no address has no addresses and can be deleted", check: func(e env) {
			e.noAddresses = true
			m := e.machine("m")
			e.Eventually(func(g Gomega) {
				vm, _, err := e.reconcile(e.connector, m, false)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(vm.State).To(Equal(hypervisor.Running))
			}).Should(Succeed())
			e.network.reset()
			e.Consistently(func() []clusterv1.MachineAddress {
				vm, err := e.observe(m)
				e.Expect(err).NotTo(HaveOccurred())
				e.Expect(vm.State).To(Equal(hypervisor.Running))
				return vm.Addresses
			}, "500ms", interval).Should(BeEmpty())
			e.Expect(e.network.writes()).To(BeZero())
			e.gone(m)
		}},
		{name: "only the addresses and names of a node are reported", check: func(e env) {
			m := e.machine("m")
			e.updateCluster(func(c *infrav1.ClusterSpec) {
				c.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.100", Port: 6443}
			})
			e.noAddresses = true
			e.Eventually(func(g Gomega) {
				vm, _, err := e.reconcile(e.connector, m, false)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(vm.State).To(Equal(hypervisor.Running))
			}).Should(Succeed())
			drain(e.connector.Changes())
			e.sim.SetAddresses(e.vm("m").ID, netip.MustParsePrefix("10.0.0.7/24"), netip.MustParsePrefix("10.0.0.100/32"))
			e.delivered(e.connector.Changes(), "m")
			e.Expect(e.until(m, stepUp).Addresses).To(Equal([]clusterv1.MachineAddress{
				{Type: clusterv1.MachineInternalIP, Address: "10.0.0.7"},
				{Type: clusterv1.MachineHostName, Address: "m"},
				{Type: clusterv1.MachineInternalDNS, Address: "m"},
			}))
		}},
		{name: "the endpoint is reported if it is the only address of a machine", check: func(e env) {
			m := e.machine("m")
			e.updateCluster(func(c *infrav1.ClusterSpec) {
				c.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.7", Port: 6443}
			})
			e.noAddresses = true
			e.Eventually(func(g Gomega) {
				vm, _, err := e.reconcile(e.connector, m, false)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(vm.State).To(Equal(hypervisor.Running))
			}).Should(Succeed())
			e.sim.SetAddresses(e.vm("m").ID, netip.MustParsePrefix("10.0.0.7/24"))
			e.Expect(e.until(m, stepUp).Addresses).To(ContainElement(
				clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "10.0.0.7"}))
		}},
		{name: "the report of the first boot is returned until it is cleared", check: func(e env) {
			m := e.up("m")
			drain(e.connector.Changes())
			report := func() hypervisor.Report {
				vm, err := e.observe(m)
				e.Expect(err).NotTo(HaveOccurred())
				return vm.Report
			}
			e.Expect(report()).To(BeZero())
			e.network.reset()
			e.sim.Report(e.vm("m").ID, "nova: failed: kubeadm init failed || no disk left")
			e.delivered(e.connector.Changes(), "m")
			e.Eventually(report).Should(Equal(hypervisor.Report{Stage: hypervisor.StageFailed, Step: "kubeadm init failed", Log: "no disk left"}))
			e.sim.Report(e.vm("m").ID, "")
			e.Eventually(report).Should(BeZero())
			e.Expect(e.network.writes()).To(BeZero())
		}},
		{name: "a guest that shuts down is not powered off", check: func(e env) {
			m := e.up("m")
			away := deleting(m)
			e.network.reset()
			d := e.driver(away)
			e.Eventually(func() error { return d.Shutdown(e.ctx(), away) }).Should(Succeed())
			_ = e.record(d.Shutdown(e.ctx(), away))
			e.becomes(away, hypervisor.Stopped)
			e.Expect(e.network.writes()).To(Equal(1), "%v", e.network.count())
			e.gone(m)
		}},
		{name: "a guest that ignores the shutdown is powered off after the timeout", check: func(e env) {
			e.sim.IgnoreShutdown()
			m := e.up("m")
			spec, _ := m.Common()
			spec.PowerOff = infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard, TimeoutSeconds: 2}
			away := deleting(m)
			e.network.reset()
			e.Eventually(func(g Gomega) {
				_, did, err := e.reconcile(e.connector, away, true)
				g.Expect(err).NotTo(HaveOccurred())
				e.Expect(did).NotTo(Equal(stepDeleted))
				g.Expect(did).To(Equal(stepDelete))
			}).Should(Succeed())
			e.Expect(e.network.writes()).To(Equal(2), "one shutdown and one power-off: %v", e.network.count())
			e.until(away, stepDeleted)
		}},
		{name: "a guest that cannot receive a shutdown is reported as unreachable", check: func(e env) {
			e.noAddresses = true
			e.sim.SetDuration(PowerOn, 10*timeout)
			m := e.machine("m")
			e.Eventually(func(g Gomega) {
				vm, _, err := e.reconcile(e.connector, m, false)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(vm.State).To(Equal(hypervisor.Running))
			}).Should(Succeed())
			e.network.reset()
			e.Expect(e.driver(m).Shutdown(e.ctx(), m)).To(HaveField("Reason", infrav1.GuestUnreachableReason))
			e.Expect(e.network.writes()).To(BeZero())
		}},
	}
}
