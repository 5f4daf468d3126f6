package hypervisor

import (
	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// foreign returns the behaviors towards VMs and disks of other users.
func foreign[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	return []behavior[M, C]{
		{name: "a machine that never had a VM leaves a foreign VM with its name alone", check: func(e env) {
			e.sim.ForeignVM("m", false)
			before := e.vm("m")
			m := e.machine("m")
			e.becomes(m, hypervisor.Absent)
			never := deleting(m)
			e.until(never, stepDeleted)
			d := e.driver(never)
			e.Expect(d.Delete(e.ctx(), never)).To(Succeed())
			_ = d.Shutdown(e.ctx(), never)
			_ = d.Start(e.ctx(), never)
			_ = e.sync(d, never, true)
			e.Expect(e.vm("m")).To(Equal(before))
		}},
		{name: "a name that a foreign VM has is a conflict until the VM is renamed", check: func(e env) {
			elsewhere, id := e.sim.ForeignVM("m", true), e.sim.ForeignVM("m", false)
			before := e.vms()
			m := e.machine("m")
			e.Expect(e.fails(m, infrav1.NameConflictReason)).To(MatchError(And(
				ContainSubstring("("+id+")"), ContainSubstring("does not belong to this machine"), Not(ContainSubstring(elsewhere)))))
			e.until(deleting(m), stepDeleted)
			e.Expect(e.vms()).To(Equal(before))

			e.sim.RenameVM(id, "other")
			e.until(m, stepUp)
			e.until(deleting(m), stepDeleted)
			e.Expect(e.vm("m").ID).To(Equal(elsewhere))
			e.Expect(e.vm("other").ID).To(Equal(id))
		}},
		{name: "a VM with the same name in another location is left alone", check: func(e env) {
			id := e.sim.ForeignVM("m", true)
			before := e.vm("m")
			m := e.up("m")
			e.Expect(e.named("m")).To(HaveLen(2))
			e.until(deleting(m), stepDeleted)
			e.Expect(e.vm("m").ID).To(Equal(id))
			e.Expect(e.vm("m")).To(Equal(before))
		}},
		{name: "the VM of a machine of another cluster is a foreign VM", check: func(e env) {
			e.up("m")
			before := e.vm("m")
			e.cluster.GetAnnotations()[infrav1.ClusterIDAnnotation] = "7b0c8f1e-59b1-4b7a-a2a9-7b1f6a2a3c55"
			e.Expect(e.objects.Update(e.ctx(), e.cluster)).To(Succeed())
			m := e.machine("m")
			e.becomes(m, hypervisor.Absent)
			err := e.fails(m, infrav1.NameConflictReason)
			e.Expect(err).To(MatchError(And(ContainSubstring(before.ID), ContainSubstring("does not belong to this machine"))))
			e.Expect(hypervisor.IsTerminal(err)).To(BeFalse())
			e.Expect(e.driver(m).Delete(e.ctx(), m)).To(Succeed())
			e.until(deleting(m), stepDeleted)
			e.Expect(e.vm("m")).To(Equal(before))
		}},
		{
			name: "hundreds of foreign VMs are read with few requests and left alone", options: SimulatorOptions{ForeignVMs: 200},
			check: func(e env) {
				before := e.vms()
				e.Expect(before).To(HaveLen(200))
				m := e.up("m")
				e.network.reset()
				e.restart()
				e.until(m, stepUp)
				e.Expect(len(e.network.requests())).To(BeNumerically("<", 40), "%v", e.network.count())
				e.gone(m)
				e.Expect(e.vms()).To(Equal(before))
			},
		},
		{name: "the disk of another user is kept if the VM is running", check: func(e env) {
			e.keepsDisk(func(VM) {})
		}},
		{name: "the disk of another user is kept if the VM is stopped", check: func(e env) {
			e.keepsDisk(func(vm VM) { e.sim.PowerOffVM(vm.ID) })
		}},
		{name: "the disk of another user is kept if the VM is suspended", check: func(e env) {
			e.keepsDisk(func(vm VM) { e.sim.SuspendVM(vm.ID) })
		}},
		{name: "the disk of another user is kept if it is in a snapshot", check: func(e env) {
			m := e.up("m")
			id := e.vm("m").ID
			e.sim.AttachDisk(id, "pvc-1")
			e.sim.Snapshot(id)
			var refused error
			e.Eventually(func() bool {
				_, did, err := e.reconcile(e.connector, deleting(m), true)
				if hypervisor.ReasonFor(err, "") == infrav1.DisksInSnapshotReason {
					refused = err
				}
				return did == stepDeleted || refused != nil
			}).Should(BeTrue())
			if refused != nil {
				e.Expect(e.vm("m").ID).To(Equal(id))
				e.Expect(e.sim.HasDisk("pvc-1")).To(BeTrue())
				e.sim.DeleteSnapshots(id)
			}
			e.gone(m)
			e.Expect(e.sim.HasDisk("pvc-1")).To(BeTrue())
		}},
		{name: "the disk of another user is kept if it is attached during the deletion", check: func(e env) {
			m := e.up("m")
			away := deleting(m)
			e.until(away, stepDelete)
			e.becomes(away, hypervisor.Stopped)
			e.sim.AttachDisk(e.vm("m").ID, "pvc-late")
			e.gone(m)
			e.Expect(e.sim.HasDisk("pvc-late")).To(BeTrue())
			e.Eventually(func() int { return e.sim.OwnDisks("m") }).Should(BeZero())
		}},
		{name: "the disk of another user is kept if the manager restarts between all steps", check: func(e env) {
			m := deleting(e.up("m"))
			e.sim.AttachDisk(e.vm("m").ID, "pvc-1")
			e.Eventually(func(g Gomega) {
				_, did, err := e.reconcile(e.connector, m, true)
				if err == nil && did == stepDelete {
					e.restart()
				}
				g.Expect(did, err).To(Equal(stepDeleted))
			}).Should(Succeed())
			e.Expect(e.named("m")).To(BeEmpty())
			e.Expect(e.sim.HasDisk("pvc-1")).To(BeTrue())
		}},
		{name: "a VM with a snapshot is deleted with its disks", check: func(e env) {
			m := e.up("m")
			e.sim.Snapshot(e.vm("m").ID)
			e.gone(m)
			e.Eventually(func() int { return e.sim.OwnDisks("m") }).Should(BeZero())
		}},
	}
}

// keepsDisk deletes a machine whose VM has a disk of another user and is in
// some state.
func (e *environment[M, C]) keepsDisk(into func(vm VM)) {
	e.t.Helper()
	m := e.up("m")
	vm := e.vm("m")
	e.sim.AttachDisk(vm.ID, "pvc-1")
	into(vm)
	e.gone(m)
	e.Expect(e.sim.HasDisk("pvc-1")).To(BeTrue())
	e.Eventually(func() int { return e.sim.OwnDisks("m") }).Should(BeZero())
}
