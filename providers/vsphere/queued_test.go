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
		b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	}
	b.wait(b.vm("old").PowerOff(b.ctx()))
	b.waitForState(old, hypervisor.Stopped)
	b.Expect(b.connect(old).Start(b.ctx(), old)).To(Succeed())
	b.waitForState(old, hypervisor.Running)
	b.destroyed(markDeleting(old))
	last := machines[n-1]
	b.Expect(b.vmNamed(last.Name)).To(BeEmpty(), "the clone is queued")
	b.Expect(b.observe(last)).To(HaveField("State", hypervisor.Busy))

	b.connector.Close()
	b.connector = b.newConnector()
	b.connect(last)
	b.Expect(b.vmNamed(last.Name)).To(BeEmpty(), "the clone is queued")
	b.Expect(b.observe(last)).To(HaveField("State", hypervisor.Busy))
	p := b.startController(b.connector)
	runs := []*machineRun{p.start(markDeleting(last))}
	for _, m := range machines[:n-1] {
		runs = append(runs, p.start(m))
	}
	p.waitForAll(soon, runs...)
	b.reconcileAll(machines[:n-1])
	b.Expect(b.vc.MostTasks("CloneVM_Task")).To(Equal(2))
	b.Expect(b.vc.Tasks("CloneVM_Task")).To(Equal(1 + n))
	for _, c := range runs {
		b.Expect(c.failures).To(BeZero())
	}
}

// The result of a task is known although the task is not in the list of recent
// tasks any more.
func TestTasksThatVCenterForgets(t *testing.T) {
	const n = 8
	b := newBedWith(t, vcenter.Options{RecentFor: time.Millisecond})
	// A task whose end the stream did not see is read after this time.
	b.options.timeouts.Lag = 2 * time.Second
	b.connector = b.newConnector()
	p := b.startController(b.connector)
	machines := b.machines("m", n)
	var runs []*machineRun
	for _, m := range machines {
		runs = append(runs, p.start(m))
	}
	p.waitForAll(soon, runs...)
	b.reconcileAll(machines)
	runs = nil
	for _, m := range machines {
		runs = append(runs, p.start(markDeleting(m)))
	}
	p.waitForAll(soon, runs...)
	b.Expect(b.vc.Tasks("CloneVM_Task")).To(Equal(n))
	b.Expect(b.vc.Tasks("Destroy_Task")).To(Equal(n))
}
