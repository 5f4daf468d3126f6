package vsphere

import (
	"net/netip"
	"testing"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// TestOwnedVMs checks that the inventory has all VMs of a cluster, without a
// request, also for a manager that has no machine.
func TestOwnedVMs(t *testing.T) {
	b := newBed(t)
	b.create("worker-1")
	b.create("worker-2")
	names := func() []string {
		site, err := b.connector.Inspect(b.ctx(), b.cluster)
		if err != nil {
			return nil
		}
		out := []string{}
		for _, vm := range site.VMs {
			b.Expect(vm.ID).To(HavePrefix("vm-"))
			out = append(out, vm.Machine)
		}
		return out
	}
	b.Eventually(names).Should(Equal([]string{"worker-1", "worker-2"}))

	b.connector = b.newConnector()
	b.Eventually(names).Should(Equal([]string{"worker-1", "worker-2"}), "a manager that has not observed a machine")
	b.vc.ResetRequests()
	b.Expect(names()).To(HaveLen(2))
	b.Expect(b.total()).To(BeZero(), "a look costs nothing")

	b.cluster.Annotations[infrav1.ClusterIDAnnotation] = uuid.NewString()
	b.Expect(names()).To(BeEmpty(), "another cluster has none of them")
}

// A VM with another name than its machine is reported by the machine's name,
// also after a restart of the manager.
func TestNamedVM(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1")
	m.Spec.Naming.Template = "K8S_{{ .machine.namespace }}_{{ .machine.name }}"
	name := "K8S_" + namespace + "_worker-1"
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	b.Expect(b.vmNamed(name)).To(HaveLen(1))
	found := b.vmNamed(name)[0]
	b.Expect(b.vc.SetGuestAddresses(found.InstanceUUID, []vcenter.GuestNIC{
		{MAC: found.NICs[0].MAC, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")}},
	})).To(Succeed())
	b.Eventually(func() []clusterv1.MachineAddress {
		vm, _ := b.observe(m)
		return vm.Addresses
	}).Should(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "worker-1"}), "the node has the machine's name")

	b.connector = b.newConnector()
	b.Eventually(func() []hypervisor.OwnedVM {
		site, _ := b.connector.Inspect(b.ctx(), b.cluster)
		return site.VMs
	}).Should(Equal([]hypervisor.OwnedVM{{Machine: "worker-1", ID: b.idOf(name)}}))
	b.waitForState(m, hypervisor.Running)

	other := b.machine("worker-2")
	other.Spec.Naming.Template = name
	b.Expect(b.connect(other).Create(b.ctx(), other, createOptions)).To(Succeed())
	b.Expect(b.waitForError(other, infrav1.NameConflictReason)).To(MatchError(ContainSubstring(b.idOf(name))))
	b.destroyed(markDeleting(m))
	b.Expect(b.vmNamed(name)).To(BeEmpty())
}

func TestAddressInUse(t *testing.T) {
	b := newBed(t)
	b.create("orphan")
	found := b.vmNamed("orphan")[0]
	b.Expect(b.vc.SetGuestAddresses(found.InstanceUUID, []vcenter.GuestNIC{
		{MAC: found.NICs[0].MAC, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")}},
	})).To(Succeed())
	// The manager of a restored backup does not know the machine.
	b.connector = b.newConnector()

	static := b.machine("static")
	static.Spec.Network.Interfaces[0].Addresses = []string{"10.1.2.3/24"}
	pooled := b.machine("pooled")
	taken := createOptions
	taken.Interfaces = [][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("10.1.2.3/24")}}}
	for m, l := range map[*infrav1.NovaVSphereMachine]hypervisor.CreateOptions{static: createOptions, pooled: taken} {
		b.Eventually(func() error { return b.connect(m).Create(b.ctx(), m, l) }).Should(MatchError(
			ContainSubstring(`the VM "orphan" (` + found.Ref + `) has the address 10.1.2.3 already`)))
		err := b.connect(m).Create(b.ctx(), m, l)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.AddressInUseReason))
		b.Expect(hypervisor.IsTerminal(err)).To(BeFalse())
		b.Expect(b.vmNamed(m.Name)).To(BeEmpty())
	}

	free := b.machine("free")
	free.Spec.Network.Interfaces[0].Addresses = []string{"10.1.2.4/24"}
	b.Expect(b.connect(free).Create(b.ctx(), free, createOptions)).To(Succeed())
	b.waitForState(free, hypervisor.Running)
}
