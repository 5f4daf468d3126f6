package zvirt

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// connectorWithLongTimeout returns a connector that waits for a late VM longer
// than a test runs.
func (b *bed) connectorWithLongTimeout() *Connector {
	b.options.timeouts.Poll.AppearTimeout = 10 * timeout
	b.connector = b.newConnector()
	return b.connector
}

// expectMayAppear observes a machine until the result of its last request is
// known, and expects that the machine is not reported as Absent meanwhile.
func (b *bed) expectMayAppear(m *zvirtv1.NovaZVirtMachine) {
	b.t.Helper()
	b.Eventually(func(g Gomega) string {
		d, err := b.connector.Connect(b.ctx(), m)
		g.Expect(err).NotTo(HaveOccurred())
		vm, err := d.Observe(b.ctx(), m)
		g.Expect(err).NotTo(HaveOccurred())
		b.Expect(vm.State).NotTo(Equal(hypervisor.Absent), "the machine would be removed")
		return vm.Message
	}).Should(Equal("Checking that no VM is being created"))
}

// expectLateVMDeleted makes the engine execute a request late, for a machine in
// deletion, and expects that the VM is deleted with the machine.
func (b *bed) expectLateVMDeleted(c *Connector, m *zvirtv1.NovaZVirtMachine) {
	b.t.Helper()
	b.expectMayAppear(m)
	id, err := kit.MachineUUID(clusterID, hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	b.foreignVM(m.Name, "Default", plan.Mark{ID: id}.String())
	b.reconcileUntil(c, m, false, "release")
	b.Expect(b.engine.VMs()).To(BeEmpty())
}

func (b *bed) newMachine(name string) *zvirtv1.NovaZVirtMachine {
	return b.machine(name, func(m *zvirtv1.NovaZVirtMachine) {
		m.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
	})
}

// An engine may execute a request long after the client stopped waiting for the
// response.
func TestLateVMAfterLostResponse(t *testing.T) {
	b := newBed(t)
	c := b.connectorWithLongTimeout()
	m := b.machine("worker-1", func(m *zvirtv1.NovaZVirtMachine) { m.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) })
	b.engine.Inject(ovirtsim.Fault{Method: "POST", Path: "vms", Drop: true})
	b.Eventually(func() string { _, did, _ := b.reconcile(c, m, false); return did }).Should(Equal("create"))
	b.expectLateVMDeleted(c, markDeleted(m))
}

// The previous manager may have sent a request just before it crashed.
func TestLateVMAfterManagerCrash(t *testing.T) {
	b := newBed(t)
	c := b.connectorWithLongTimeout()
	b.expectLateVMDeleted(c, markDeleted(b.machine("worker-1")))
}

func TestMachineWithoutVMIsDeletedAtOnce(t *testing.T) {
	b := newBed(t)
	c := b.connectorWithLongTimeout()
	b.reconcileUntil(c, markDeleted(b.newMachine("worker-1")), false, "release")

	created := b.newMachine("worker-2")
	b.reconcileUntil(c, created, false, "start")
	b.reconcileUntil(c, markDeleted(created), false, "release")
	b.Expect(b.engine.VMs()).To(BeEmpty())
}
