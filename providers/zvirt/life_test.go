package zvirt

import (
	"maps"
	"slices"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// writes are the requests that change something, and shared all others.
func (b *bed) writes() (writes, shared map[string]int) {
	writes, shared = map[string]int{}, map[string]int{}
	for request, n := range b.engine.Requests() {
		if request[:3] == "GET" {
			shared[request] = n
		} else {
			writes[request] = n
		}
	}
	return writes, shared
}

func TestLife(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1")
	b.engine.ResetRequests()
	vm := b.until(b.connector, m, true, "rest")
	writes, shared := b.writes()
	t.Log(writes, shared)
	b.Expect(vm.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "10.0.0.10"}))
	b.Expect(vm.UserData).To(BeFalse())
	b.Expect(vm.Host).To(HavePrefix("host"))
	b.Expect(slices.Sorted(maps.Keys(writes))).To(HaveLen(6))

	gone := going(m)
	b.engine.ResetRequests()
	b.until(b.connector, gone, false, "release")
	writes, shared = b.writes()
	t.Log(writes, shared)
	b.Expect(b.named("worker-1")).To(BeEmpty())
	_ = hypervisor.Absent
}
