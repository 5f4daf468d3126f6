package vsphere

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestDelete(t *testing.T) {
	b := newBed(t)
	m := markDeleting(b.create("m"))
	changes := b.connector.Changes()
	b.vc.ResetRequests()

	d := b.connect(m)
	b.Expect(d.Delete(b.ctx(), m)).To(Succeed())
	b.Expect(d.Delete(b.ctx(), m)).To(Succeed(), "a repeated call does nothing")
	b.notified(changes, "m", soon)
	b.waitForState(m, hypervisor.Stopped)
	b.Expect(d.Delete(b.ctx(), m)).To(Succeed())
	b.waitForState(m, hypervisor.Absent)
	b.Expect(d.Delete(b.ctx(), m)).To(Succeed(), "the deletion of a VM that does not exist succeeds")

	b.Expect(b.vmNamed("m")).To(BeEmpty())
	b.Expect(b.vc.Requests()).To(Equal(map[string]int{"PowerOffVM_Task": 1, "RetrievePropertiesEx": 1, "Destroy_Task": 1}))
}

func TestDeleteFailure(t *testing.T) {
	b := newBed(t)
	m := markDeleting(b.create("m"))
	b.vc.InjectFault("PowerOffVM_Task", 1, &types.SystemErrorFault{Reason: "the host is upset"}, "")
	b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
	err := b.waitForError(m, infrav1.HypervisorErrorReason)
	b.Expect(err).To(MatchError(ContainSubstring("the host is upset")))
	b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
	b.waitForState(m, hypervisor.Stopped)
}

// If vCenter refuses to power off a VM because it is off, and shows it as
// powered on, the request is not repeated without end.
func TestPowerOffThatIsRefused(t *testing.T) {
	b := newBed(t)
	b.options.timeouts.Lag = 100 * time.Millisecond
	b.connector = b.newConnector()
	m := markDeleting(b.create("m"))
	b.vc.InjectCallFault("PowerOffVM_Task", 0, &types.InvalidPowerState{ExistingState: types.VirtualMachinePowerStatePoweredOff}, "")
	for range 3 {
		b.waitForState(m, hypervisor.Running)
		b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
		b.Expect(b.waitForError(m, infrav1.HypervisorErrorReason)).To(MatchError(ContainSubstring(
			"vCenter shows that the VM is not powered off, but rejected the power-off")))
	}
	b.vc.ClearFaults()
	b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
	b.waitForState(m, hypervisor.Stopped)
}

// A restarted manager finds every VM again with the requests that open the
// session, however many VMs there are.
func TestRestart(t *testing.T) {
	b := newBed(t)
	count := func(first, n int) int {
		for i := first; i < n; i++ {
			m := b.machine(fmt.Sprintf("m%d", i))
			b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
		}
		for i := range n {
			b.waitForState(b.machine(fmt.Sprintf("m%d", i)), hypervisor.Running)
		}
		b.connector.Close()
		b.vc.ResetRequests()
		b.connector = b.newConnector()
		for i := range n {
			b.waitForState(b.machine(fmt.Sprintf("m%d", i)), hypervisor.Running)
		}
		return b.total()
	}
	few := count(0, 2)
	b.Expect(count(2, 8)).To(Equal(few))
	b.Expect(few).To(BeNumerically("<=", 8), "%v", b.vc.Requests())
}

// drain reads the delivered keys until none comes for a short time.
func (b *bed) drain(keys <-chan hypervisor.Key) {
	for {
		select {
		case <-keys:
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}
