package zvirt

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// TestFleet starts a manager with many running machines: it reads them with few
// requests, and sends no request for a single machine.
func TestFleet(t *testing.T) {
	const count = 400
	b := newBed(t)
	b.options.timeouts.Poll.Idle, b.options.timeouts.Poll.Groups = time.Hour, time.Hour
	machines := make([]*zvirtv1.NovaZVirtMachine, count)
	for i := range machines {
		m := b.machine(fmt.Sprintf("fleet-%d", i), func(m *zvirtv1.NovaZVirtMachine) { m.Spec.AntiAffinity = infrav1.AntiAffinityNone })
		id, err := kit.MachineUUID(clusterID, hypervisor.KeyOf(m))
		b.Expect(err).NotTo(HaveOccurred())
		vm := b.foreignVM(m.Name, "Default", plan.Mark{ID: id}.String())
		b.Expect(b.engine.SetVMStatus(vm, "up")).To(Succeed())
		m.Spec.ProviderID = "zvirt://" + vm
		machines[i] = m
	}
	c := b.newConnector()
	b.engine.ResetRequests()
	see := func(state hypervisor.State) func() int {
		return func() (n int) {
			for _, m := range machines {
				d, err := c.Connect(b.ctx(), m)
				b.Expect(err).NotTo(HaveOccurred())
				vm, err := d.Observe(b.ctx(), m)
				b.Expect(err).NotTo(HaveOccurred())
				if vm.State == state {
					n++
				}
			}
			return n
		}
	}
	b.Eventually(see(hypervisor.Running)).Should(Equal(count))
	b.Eventually(func() int { see(hypervisor.Running)(); return sum(b.engine.Requests()) }).Should(BeNumerically(">=", 1+count/40))
	b.Expect(sum(b.engine.Requests())).To(BeNumerically("<", count/4))
	b.Expect(b.engine.Requests()).NotTo(HaveKey("GET /vms/{}"))
	b.Expect(b.engine.Connections().Made).To(BeNumerically("<=", 16))
}
