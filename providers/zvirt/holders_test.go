package zvirt

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// ownedVMs returns the names of the VMs that Inspect reports for the cluster.
func (b *bed) ownedVMs() []string {
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

func TestAddressInUse(t *testing.T) {
	b := newBed(t)
	address := func(text string) func(*zvirtv1.NovaZVirtMachine) {
		return func(m *zvirtv1.NovaZVirtMachine) {
			m.Spec.Network.Interfaces = []zvirtv1.NovaZVirtInterface{{InterfaceAddressing: infrav1.InterfaceAddressing{Addresses: []string{text}}}}
		}
	}
	orphan := b.machine("orphan", address("10.1.2.3/24"))
	b.reconcileUntil(b.connector, orphan, true, "rest")
	b.Expect(b.admin("GET", "/vms/"+b.vmsNamed("orphan")[0].ID, "")).To(ContainSubstring("addresses=10.1.2.3"), "the address outlives the user data")
	// The manager of a restored backup has no such machine.
	b.connector = b.newConnector()
	b.Eventually(b.ownedVMs).Should(ConsistOf("orphan"))

	static, pooled := b.machine("static", address("10.1.2.3/24")), b.machine("pooled")
	taken := launch
	taken.Interfaces = [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("10.1.2.3/24")}}}
	pooled.Spec.Network.Interfaces[0].AddressesFromPools = append(pooled.Spec.Network.Interfaces[0].AddressesFromPools, ipamv1.IPPoolReference{Name: "pool"})
	for m, l := range map[*zvirtv1.NovaZVirtMachine]hypervisor.CreateOptions{static: launch, pooled: taken} {
		err := b.connect(m).Create(b.ctx(), m, l)
		b.Expect(err).To(MatchError(ContainSubstring(`the VM "orphan" (`+b.vmsNamed("orphan")[0].ID+`) already has the address 10.1.2.3`)), m.Name)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.AddressInUseReason))
		b.Expect(b.vmsNamed(m.Name)).To(BeEmpty())
	}
	b.reconcileUntil(b.connector, b.machine("free", address("10.1.2.4/24")), true, "rest")
}
