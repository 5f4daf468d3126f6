package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// seenWithin is how soon what happens outside has to be known.
const seenWithin = 2 * time.Second

// idOf is the reference of a machine's VM.
func (b *bed) idOf(name string) string {
	b.t.Helper()
	found := b.vmNamed(name)
	b.Expect(found).To(HaveLen(1))
	return found[0].Ref
}

// provisioned is a machine whose VM came up before.
func (b *bed) provisioned(m *infrav1.NovaVSphereMachine) *infrav1.NovaVSphereMachine {
	vm, err := b.look(m)
	b.Expect(err).NotTo(HaveOccurred())
	m = m.DeepCopy()
	m.Spec.ProviderID = vm.ProviderID
	return m
}

// destroyed deletes a machine's VM the way its controller does: step by step,
// trying again after failures.
func (b *bed) destroyed(m *infrav1.NovaVSphereMachine) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		vm, err := b.look(m)
		g.Expect(err).NotTo(HaveOccurred())
		if vm.State == hypervisor.Running || vm.State == hypervisor.Stopped {
			g.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
		}
		g.Expect(vm.State).To(Equal(hypervisor.Absent))
	}).Should(Succeed())
}

func TestHostFollowsMigration(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	changes := b.connector.Changes()
	before, err := b.look(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(before.Host).NotTo(BeEmpty())
	to := "DC0_C0_H0"
	if before.Host == to {
		to = "DC0_C0_H1"
	}
	b.drain(changes)
	b.vc.ResetRequests()
	b.Expect(b.vc.MigrateVM(b.idOf("m"), to)).To(Succeed())
	b.told(changes, "m", seenWithin)
	vm, err := b.look(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.Host).To(Equal(to))
	b.Expect(vm.State).To(Equal(hypervisor.Running))
	b.Expect(b.total()).To(BeZero(), "what the stream tells costs nothing")
}

func TestRenamedOutside(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.wait(b.vm("m").Rename(b.ctx(), "renamed"))
	b.Consistently(func() (hypervisor.State, error) {
		vm, err := b.look(m)
		return vm.State, err
	}, "300ms").Should(Equal(hypervisor.Running))
	b.destroyed(going(m))
	b.Expect(b.vmNamed("renamed")).To(BeEmpty())
}

func TestRegisteredAnewOutside(t *testing.T) {
	b := newBed(t)
	m := b.provisioned(b.create("m"))
	was := b.idOf("m")
	now, err := b.vc.ReregisterVM(was)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(now).NotTo(Equal(was))
	vm := b.reaches(m, hypervisor.Running)
	b.Expect(vm.ProviderID).To(Equal(m.Spec.ProviderID))
	b.destroyed(going(m))
	b.Expect(b.vmNamed("m")).To(BeEmpty())
}

func TestSuspendedOutside(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	changes := b.connector.Changes()
	b.drain(changes)
	b.wait(b.vm("m").Suspend(b.ctx()))
	b.told(changes, "m", seenWithin)
	b.reaches(m, hypervisor.Stopped)
	b.Expect(b.connect(m).Start(b.ctx(), m)).To(Succeed())
	b.reaches(m, hypervisor.Running)
}

func TestUnreachableIsNotLost(t *testing.T) {
	b := newBed(t)
	m := b.provisioned(b.create("m"))
	vm, err := b.look(m)
	b.Expect(err).NotTo(HaveOccurred())
	changes := b.connector.Changes()
	b.drain(changes)
	b.Expect(b.vc.SetHostConnected(vm.Host, false)).To(Succeed())
	b.told(changes, "m", seenWithin)
	for _, m := range []*infrav1.NovaVSphereMachine{m, going(m)} {
		_, err = b.look(m)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.VMUnreachableReason))
		b.Expect(err).To(MatchError(And(ContainSubstring(vm.Host), ContainSubstring("disconnected"))))
		b.vc.ResetRequests()
		b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
		b.Expect(b.connect(m).Create(b.ctx(), m, launch)).To(Succeed())
		b.Expect(b.total()).To(BeZero(), "nothing is asked of a VM that cannot be reached")
	}
	b.Expect(b.vc.SetHostConnected(vm.Host, true)).To(Succeed())
	b.reaches(m, hypervisor.Running)
	for _, state := range []string{"inaccessible", "orphaned", "invalid"} {
		b.Expect(b.vc.SetConnectionState(b.idOf("m"), state)).To(Succeed())
		b.Expect(b.fails(m, infrav1.VMUnreachableReason)).To(MatchError(ContainSubstring(state)))
		b.Expect(b.vc.SetConnectionState(b.idOf("m"), "connected")).To(Succeed())
		b.reaches(m, hypervisor.Running)
	}
}

func TestCopyWithTheSameUUIDIsNeverDestroyed(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	_, err := b.vc.CopyVM(b.idOf("m"), "copy")
	b.Expect(err).NotTo(HaveOccurred())
	err = b.fails(going(m), infrav1.VMAmbiguousReason)
	b.Expect(err).To(MatchError(ContainSubstring("remove the copies")))
	b.vc.ResetRequests()
	b.Expect(b.connect(m).Delete(b.ctx(), going(m))).To(Succeed())
	b.Expect(b.total()).To(BeZero())
	b.Expect(b.vmNamed("m")).To(HaveLen(1))
	b.Expect(b.vmNamed("copy")).To(HaveLen(1))

	b.wait(b.vm("copy").Destroy(b.ctx()))
	b.reaches(m, hypervisor.Running)
}

// hidden waits until a machine says that the account does not see its VM.
func (b *bed) hidden(m *infrav1.NovaVSphereMachine) {
	b.t.Helper()
	b.Expect(b.fails(m, infrav1.VMNotVisibleReason)).To(MatchError(ContainSubstring("account")))
}

// An account that loses sight of a VM must not take it for gone: its machine
// would be lost, or released while its VM runs on.
func TestLosingSight(t *testing.T) {
	for _, what := range []string{"m", vcenter.DefaultFolder} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t)
			m := b.provisioned(b.create("m"))
			id := what
			if what == "m" {
				id = b.idOf("m")
			}
			changes := b.connector.Changes()
			b.drain(changes)
			b.Expect(b.vc.SetHidden(id, true)).To(Succeed())
			b.told(changes, "m", seenWithin)
			b.hidden(m)
			b.hidden(going(m))
			b.connect(m).(*driver).session.relearn()
			b.hidden(going(m))
			b.Expect(b.vc.SetHidden(id, false)).To(Succeed())
			b.reaches(m, hypervisor.Running)
		})
	}
}

// A manager that starts anew has never seen the VM. It must see where it was
// made before it believes that it is gone.
func TestLosingSightBeforeARestart(t *testing.T) {
	b := newBed(t)
	m := b.provisioned(b.create("m"))
	b.connector.Close()
	b.Expect(b.vc.SetHidden(vcenter.DefaultFolder, true)).To(Succeed())
	b.connector = b.newConnector()
	b.hidden(m)
	b.hidden(going(m))
	b.Expect(b.vc.SetHidden(vcenter.DefaultFolder, false)).To(Succeed())
	b.reaches(m, hypervisor.Running)
}

// A VM that is gone is known to be gone, also by a manager that starts anew,
// and is asked about once.
func TestGoneIsGone(t *testing.T) {
	b := newBed(t)
	m := b.provisioned(b.create("m"))
	vm := b.vm("m")
	b.wait(vm.PowerOff(b.ctx()))
	b.vc.ResetRequests()
	b.wait(vm.Destroy(b.ctx()))
	b.reaches(m, hypervisor.Absent)
	b.vc.ResetRequests()
	b.reaches(m, hypervisor.Absent)
	b.Expect(b.total()).To(BeZero())

	b.connector.Close()
	b.connector = b.newConnector()
	b.reaches(m, hypervisor.Absent)
	b.vc.ResetRequests()
	b.reaches(m, hypervisor.Absent)
	b.Expect(b.total()).To(BeZero())
	b.reaches(going(m), hypervisor.Absent)
}
