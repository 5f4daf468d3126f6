package zvirt

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// patient has a connector that waits for a VM that may yet come longer than any
// test lasts.
func (b *bed) patient() *Connector {
	b.options.timeouts.Poll.AppearTimeout = 10 * soon
	b.connector = b.newConnector()
	return b.connector
}

// awaits looks at a machine until what became of its last request is known,
// and expects that it is not let go.
func (b *bed) awaits(m *infrav1.NovaZVirtMachine) {
	b.t.Helper()
	b.Eventually(func(g Gomega) string {
		d, err := b.connector.Connect(b.ctx(), m)
		g.Expect(err).NotTo(HaveOccurred())
		vm, err := d.Observe(b.ctx(), m)
		g.Expect(err).NotTo(HaveOccurred())
		b.Expect(vm.State).NotTo(Equal(hypervisor.Absent), "the machine is let go")
		return vm.Message
	}).Should(Equal("Checking that no VM is being created"))
}

// comesLate has the engine carry out late what it was asked for, for a machine
// that goes, and expects that the VM goes with it.
func (b *bed) comesLate(c *Connector, m *infrav1.NovaZVirtMachine) {
	b.t.Helper()
	b.awaits(m)
	id, err := plan.Identify(clusterID, keyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	b.foreignVM(m.Name, "Default", plan.Mark{ID: id}.String())
	b.until(c, m, false, "release")
	b.Expect(b.engine.VMs()).To(BeEmpty())
}

func (b *bed) young(name string) *infrav1.NovaZVirtMachine {
	return b.machine(name, func(m *infrav1.NovaZVirtMachine) {
		m.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
	})
}

// An engine may carry out what it was asked for long after nobody waits for
// its answer any more.
func TestVMThatComesAfterItsAnswerWasLost(t *testing.T) {
	b := newBed(t)
	c := b.patient()
	m := b.machine("worker-1", func(m *infrav1.NovaZVirtMachine) { m.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) })
	b.engine.Inject(ovirtsim.Fault{Method: "POST", Path: "vms", Drop: true})
	b.Eventually(func() string { _, did, _ := b.reconcile(c, m, false); return did }).Should(Equal("create"))
	b.comesLate(c, going(m))
}

// Who was here before may have asked in its last moment.
func TestVMThatComesAfterItsManagerDied(t *testing.T) {
	b := newBed(t)
	c := b.patient()
	b.comesLate(c, going(b.machine("worker-1")))
}

func TestMachineWithoutAVMIsLetGoAtOnce(t *testing.T) {
	b := newBed(t)
	c := b.patient()
	b.until(c, going(b.young("worker-1")), false, "release")

	created := b.young("worker-2")
	b.until(c, created, false, "start")
	b.until(c, going(created), false, "release")
	b.Expect(b.engine.VMs()).To(BeEmpty())
}
