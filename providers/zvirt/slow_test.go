package zvirt

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// A large engine needs time for each VM in a list and for each link that is
// followed, and reports addresses long after the guest has them. Until then a
// machine has no address, and other machines do not wait for it.
func TestSlowEngine(t *testing.T) {
	b := newBed(t, func(o *ovirtsim.Options) {
		o.Timings[ovirtsim.TimeListVM] = 20 * time.Millisecond
		o.Timings[ovirtsim.TimeFollow] = 10 * time.Millisecond
		o.Timings[ovirtsim.TimeGuestReport] = 10 * timeout
	})
	m := b.machine("worker-1")
	b.reconcileUntil(b.connector, m, false, "start")
	b.Eventually(func() []ovirtsim.VM { return b.vmsNamed(m.Name) }).Should(ContainElement(HaveField("Status", "up")))
	var vm hypervisor.VM
	b.Eventually(func() (hypervisor.State, error) {
		var err error
		vm, _, err = b.reconcile(b.connector, m, false)
		return vm.State, err
	}).Should(Equal(hypervisor.Running))
	b.Expect(vm.Addresses).NotTo(ContainElement(HaveField("Type", clusterv1.MachineInternalIP)), "the engine shows no address yet")

	b.Expect(b.engine.SetTiming(ovirtsim.TimeGuestReport, 300*time.Millisecond)).To(Succeed())
	other := b.machine("worker-2")
	vm = b.reconcileUntil(b.connector, other, true, "rest")
	b.Expect(vm.NICs).To(ConsistOf(And(
		HaveField("Network", "ovirtmgmt/ovirtmgmt"), HaveField("MAC", b.vmsNamed(other.Name)[0].NICs[0].MAC), HaveField("Addresses", Not(BeEmpty())))))
	b.reconcileUntil(b.connector, markDeleted(other), false, "release")
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.engine.VMs()).To(BeEmpty())
}
