package zvirt

import (
	"net/netip"
	"testing"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// marked returns the names of the VMs that the inventory tells of the cluster.
func (b *bed) marked() []string {
	site, err := b.connector.Inspect(b.ctx(), b.cluster)
	if err != nil {
		return nil
	}
	out := []string{}
	for _, vm := range site.VMs {
		b.Expect(vm.ID).NotTo(BeEmpty())
		out = append(out, vm.Machine)
	}
	return out
}

// TestMarkedVMs: the list that the mirror reads anyway tells all VMs of a
// cluster, also to a manager that has no machine.
func TestMarkedVMs(t *testing.T) {
	b := newBed(t)
	b.create("worker-1")
	b.create("worker-2")
	b.Eventually(b.marked).Should(ConsistOf("worker-1", "worker-2"))

	b.connector = b.newConnector()
	b.Eventually(b.marked).Should(ConsistOf("worker-1", "worker-2"), "a manager that has not asked about a machine")
	b.cluster.Annotations[infrav1.ClusterIDAnnotation] = uuid.NewString()
	b.Expect(b.marked()).To(BeEmpty(), "another cluster has none of them")
}

// A VM that has another name than its machine is reported by the machine's name,
// also after a restart of the manager.
func TestNamedVM(t *testing.T) {
	b := newBed(t)
	named := func(template string) func(*infrav1.NovaZVirtMachine) {
		return func(m *infrav1.NovaZVirtMachine) { m.Spec.Naming.Template = template }
	}
	m := b.create("worker-1", named("K8S_{{ .machine.name }}"))
	b.Expect(b.named("K8S_worker-1")).To(HaveLen(1))
	vm, err := b.connect(m).Observe(b.ctx(), m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "worker-1"}), "the node has the machine's name")

	b.connector = b.newConnector()
	b.Eventually(b.marked).Should(ConsistOf("worker-1"))
	unpublished := m.DeepCopy()
	unpublished.Spec.ProviderID = ""
	b.Eventually(func() hypervisor.State { return b.connectedSees(unpublished) }).Should(Equal(hypervisor.Running), "its ID was not written down")

	other := b.machine("worker-2", named("K8S_worker-1"))
	b.Expect(b.fails(other, infrav1.NameConflictReason)).To(HaveOccurred())
	b.until(b.connector, going(m), false, "release")
	b.Expect(b.named("K8S_worker-1")).To(BeEmpty())
}

func TestAddressThatAnotherVMHas(t *testing.T) {
	b := newBed(t)
	address := func(text string) func(*infrav1.NovaZVirtMachine) {
		return func(m *infrav1.NovaZVirtMachine) {
			m.Spec.Network.Interfaces = []infrav1.NovaZVirtInterface{{InterfaceAddressing: infrav1.InterfaceAddressing{Addresses: []string{text}}}}
		}
	}
	orphan := b.machine("orphan", address("10.1.2.3/24"))
	b.until(b.connector, orphan, true, "rest")
	b.Expect(b.admin("GET", "/vms/"+b.named("orphan")[0].ID, "")).To(ContainSubstring("addresses=10.1.2.3"), "the address outlives the user data")
	// The manager of a restored backup knows nothing of the machine.
	b.connector = b.newConnector()
	b.Eventually(b.marked).Should(ConsistOf("orphan"))

	static, pooled := b.machine("static", address("10.1.2.3/24")), b.machine("pooled")
	taken := launch
	taken.Interfaces = [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("10.1.2.3/24")}}}
	pooled.Spec.Network.Interfaces[0].AddressesFromPools = append(pooled.Spec.Network.Interfaces[0].AddressesFromPools, ipamv1.IPPoolReference{Name: "pool"})
	for m, l := range map[*infrav1.NovaZVirtMachine]hypervisor.CreateOptions{static: launch, pooled: taken} {
		err := b.connect(m).Create(b.ctx(), m, l)
		b.Expect(err).To(MatchError(ContainSubstring(`the VM "orphan" (`+b.named("orphan")[0].ID+`) already has the address 10.1.2.3`)), m.Name)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.AddressInUseReason))
		b.Expect(b.named(m.Name)).To(BeEmpty())
	}
	b.until(b.connector, b.machine("free", address("10.1.2.4/24")), true, "rest")
}
