package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// A failed clone releases its slot, also a clone that vCenter rejects at once,
// and a clone that is lost with its session.
func TestSlotIsReleased(t *testing.T) {
	b := newBed(t)
	b.options.MaxCreations = 1
	b.options.timeouts = shortTimeouts
	// Other tests may use the processors.
	b.options.timeouts.Request, b.options.timeouts.Wait = 5*time.Second, 5*time.Second
	b.connector = b.newConnector()
	b.vc.SetTaskDelay("CloneVM_Task", 2*time.Second)
	b.vc.InjectFault("CloneVM_Task", 1, &types.NoDiskSpace{Datastore: "LocalDS_0"}, "")
	failing, next := b.machine("failing"), b.machine("next")
	changes := b.connector.Changes()
	b.Expect(b.connect(failing).Create(b.ctx(), failing, createOptions)).To(Succeed())
	b.Expect(hypervisor.IsWaiting(b.connect(next).Create(b.ctx(), next, createOptions))).To(BeTrue())
	// The failure is read when the machine is observed.
	b.Eventually(func() string {
		return hypervisor.ReasonFor(b.failure(failing), "")
	}).Should(Equal(infrav1.InsufficientResourcesReason))
	b.notified(changes, "next", soon)

	b.vc.SetDisturbance(func(method string) vcenter.Disturbance {
		if method == "CloneVM_Task" {
			return vcenter.Refused
		}
		return vcenter.Undisturbed
	})
	b.Expect(b.connect(next).Create(b.ctx(), next, createOptions)).NotTo(Succeed())
	b.vc.SetDisturbance(nil)
	p := b.startController(b.connector)
	p.waitForAll(soon, p.start(failing), p.start(next))

	lost, last := b.machine("lost"), b.machine("last")
	b.vc.SetTaskDelay("CloneVM_Task", time.Minute)
	b.Expect(b.connect(lost).Create(b.ctx(), lost, createOptions)).To(Succeed())
	b.Expect(hypervisor.IsWaiting(b.connect(last).Create(b.ctx(), last, createOptions))).To(BeTrue())
	b.vc.SetTaskDelay("CloneVM_Task", 10*time.Millisecond)
	b.vc.Restart(10 * time.Millisecond)
	p.waitForAll(soon, p.start(lost), p.start(last))
	b.reconcileAll([]*vspherev1.NovaVSphereMachine{failing, next, lost, last})
}

// Five hundred machines are created at once: the number of clones stays within
// the limit, and machines that are deleted meanwhile are deleted as fast as
// without the creations.
func TestScaleUpStarvesNoDelete(t *testing.T) {
	const n, olds, most = 500, 10, 16
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{
		Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, DiskGiB: 1}}, // otherwise the datastore is full
	}})
	b.options.MaxCreations = most
	b.connector = b.newConnector()
	p := b.startController(b.connector)
	var old []*machineRun
	for _, m := range b.machines("old", olds) {
		old = append(old, p.start(m))
	}
	p.waitForAll(soon, old...)
	b.vc.ResetRequests()
	b.vc.SetTaskDelay("CloneVM_Task", 100*time.Millisecond)

	began := time.Now()
	var all []*machineRun
	machines := b.machines("new", n)
	for _, m := range machines {
		all = append(all, p.start(m))
	}
	b.Eventually(func() int { return b.vc.Requests()["CloneVM_Task"] }).Should(BeNumerically(">", most))
	var gone []*machineRun
	for _, c := range old {
		gone = append(gone, p.start(markDeleting(c.machine)))
	}
	p.waitForAll(time.Minute, gone...)
	left := 0
	for _, c := range all {
		select {
		case <-c.done:
		default:
			left++
		}
	}
	var slowest time.Duration
	for _, c := range gone {
		slowest = max(slowest, c.endedAt.Sub(c.startedAt))
	}
	t.Logf("each of %d deletions took at most %s, and %d of %d machines were still to come", olds, slowest, left, n)
	// The duration depends on the test machine. Since most machines were not
	// created yet, no deletion has waited for them.
	b.Expect(left).To(BeNumerically(">", n/2), "the deletions did not wait for the creations")

	p.waitForAll(2*time.Minute, all...)
	b.expectRequests(t, "scale-up", n, began)
	b.reconcileAll(machines)
	b.Expect(b.vc.MostTasks("CloneVM_Task")).To(BeNumerically("<=", most))
	b.Expect(b.vc.MostTasks("CloneVM_Task")).To(BeNumerically(">=", most/2), "the limit was reached")
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("CloneVM_Task", n))
	for _, c := range all {
		b.Expect(c.failures).To(BeZero(), "to wait is no failure")
	}
}
