package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// vCenter runs a few clones on a host at the same time and queues the others.
// A machine with a queued clone is busy, also for a manager that did not
// request the clone; it does not fail and is not cloned twice. Other machines
// do not wait.
func TestClonesThatVCenterQueues(t *testing.T) {
	const n = 5
	b := newBedWith(t, vcenter.Options{ClonesPerHost: 1})
	old := b.create("old")
	b.vc.SetTaskDelay("CloneVM_Task", 3*time.Second)
	machines := b.machines("m", n)
	for _, m := range machines {
		b.Expect(b.connect(m).Create(b.ctx(), m, launch)).To(Succeed())
	}
	b.wait(b.vm("old").PowerOff(b.ctx()))
	b.reaches(old, hypervisor.Stopped)
	b.Expect(b.connect(old).Start(b.ctx(), old)).To(Succeed())
	b.reaches(old, hypervisor.Running)
	b.destroyed(markDeleting(old))
	last := machines[n-1]
	b.Expect(b.vmNamed(last.Name)).To(BeEmpty(), "the clone is queued")
	b.Expect(b.look(last)).To(HaveField("State", hypervisor.Busy))

	b.connector.Close()
	b.connector = b.newConnector()
	b.connect(last)
	b.Expect(b.vmNamed(last.Name)).To(BeEmpty(), "the clone is queued")
	b.Expect(b.look(last)).To(HaveField("State", hypervisor.Busy))
	p := b.fly(b.connector)
	crafts := []*craft{p.take(markDeleting(last))}
	for _, m := range machines[:n-1] {
		crafts = append(crafts, p.take(m))
	}
	p.arrived(soon, crafts...)
	b.once(machines[:n-1])
	b.Expect(b.vc.MostTasks("CloneVM_Task")).To(Equal(2))
	b.Expect(b.vc.Tasks("CloneVM_Task")).To(Equal(1 + n))
	for _, c := range crafts {
		b.Expect(c.failures).To(BeZero())
	}
}

// The result of a task is known although the task is not in the list of recent
// tasks any more.
func TestTasksThatVCenterForgets(t *testing.T) {
	const n = 8
	b := newBedWith(t, vcenter.Options{RecentFor: time.Millisecond})
	p := b.fly(b.connector)
	machines := b.machines("m", n)
	var crafts []*craft
	for _, m := range machines {
		crafts = append(crafts, p.take(m))
	}
	p.arrived(soon, crafts...)
	b.once(machines)
	crafts = nil
	for _, m := range machines {
		crafts = append(crafts, p.take(markDeleting(m)))
	}
	p.arrived(soon, crafts...)
	b.Expect(b.vc.Tasks("CloneVM_Task")).To(Equal(n))
	b.Expect(b.vc.Tasks("Destroy_Task")).To(Equal(n))
}
