package hypervisor

import (
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// The sizes that machines get while they run.
const (
	moreCPUs      = 4
	moreMemoryMiB = 2048
	moreDiskGiB   = 40
)

// sizes returns the behaviors of VMs whose CPUs, memory and boot disk are increased.
func sizes[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	return []behavior[M, C]{
		{name: "sizes are increased while the VM runs", check: func(e env) {
			m, before := e.sized("m")
			vm, err := e.observe(m)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(vm.Resizable).To(ConsistOf(
				And(HaveField("Field", "hardware.cpus"), HaveField("Size", before.CPUs), HaveField("MaxSize", BeNumerically(">=", moreCPUs)), HaveField("Message", "")),
				And(HaveField("Field", "hardware.memoryMiB"), HaveField("Size", before.MemoryMiB), HaveField("MaxSize", BeNumerically(">=", moreMemoryMiB)), HaveField("Message", "")),
				And(HaveField("Field", "disks.boot.sizeGiB"), HaveField("Size", before.DiskGiB), HaveField("MaxSize", BeNumerically(">=", moreDiskGiB)), HaveField("Message", "")),
			))
			e.network.reset()
			e.setSizes(m, moreCPUs, moreMemoryMiB, moreDiskGiB)
			e.until(m, stepUp)
			e.increased("m", before)
			e.Expect(e.network.writes()).To(BeNumerically("<=", 2), "one request for the disk, one for the others: %v", e.network.count())
			e.restart()
			// The list of a hypervisor may be behind.
			e.Eventually(func() ([]hypervisor.Resizable, error) {
				vm, err = e.observe(m)
				return vm.Resizable, err
			}).Should(ContainElements(HaveField("Size", int64(moreCPUs)), HaveField("Size", int64(moreMemoryMiB)), HaveField("Size", int64(moreDiskGiB))))
			e.Expect(vm.ToSync).To(BeEmpty())
		}},
		{name: "sizes are increased only while Cluster API updates the machine", check: func(e env) {
			m, before := e.sized("m")
			e.network.reset()
			e.adapter.SetSizes(m, moreCPUs, moreMemoryMiB, moreDiskGiB)
			e.until(m, stepUp)
			e.Expect(e.network.writes()).To(BeZero())
			updating := e.machine("m2")
			e.setSizes(updating, moreCPUs, moreMemoryMiB, moreDiskGiB)
			e.until(updating, stepUp) // a new VM has the sizes at once
			e.Expect(e.vm("m")).To(And(HaveField("CPUs", before.CPUs), HaveField("MemoryMiB", before.MemoryMiB), HaveField("DiskGiB", before.DiskGiB)))
			e.Expect(e.vm("m2")).To(And(HaveField("CPUs", int64(moreCPUs)), HaveField("MemoryMiB", int64(moreMemoryMiB)), HaveField("DiskGiB", int64(moreDiskGiB))))
		}},
		{name: "a size that the VM cannot get while it runs is refused without a request", check: func(e env) {
			m, _ := e.sized("m")
			e.network.reset()
			e.setSizes(m, moreCPUs, moreMemoryMiB+4, moreDiskGiB)
			err := e.fails(m, infrav1.InvalidSpecReason)
			e.Expect(hypervisor.IsTerminal(err)).To(BeTrue())
			e.Expect(err).To(MatchError(ContainSubstring("hardware.memoryMiB: it is 1024 and can be increased by a multiple of")))
			e.Expect(e.network.writes()).To(BeZero())
		}},
		{name: "an increase that fails is reported and repeated", check: func(e env) {
			m, before := e.sized("m")
			e.sim.Fail(Increase)
			e.setSizes(m, moreCPUs, moreMemoryMiB, moreDiskGiB)
			e.Expect(e.fails(m, infrav1.HypervisorErrorReason)).To(HaveOccurred())
			e.until(m, stepUp)
			e.increased("m", before)
		}},
	}
}

// sized returns a machine that is up, and its VM, once the sizes of the VM are reported:
// the list of a hypervisor may be behind.
func (e *environment[M, C]) sized(name string) (M, VM) {
	e.t.Helper()
	m := e.up(name)
	is := e.vm(name)
	e.Eventually(func() ([]hypervisor.Resizable, error) {
		vm, err := e.observe(m)
		return vm.Resizable, err
	}).Should(ContainElements(HaveField("Size", is.CPUs), HaveField("Size", is.MemoryMiB), HaveField("Size", is.DiskGiB)))
	return m, is
}

// setSizes changes the sizes of a machine as Cluster API does when it updates the
// machine in place.
func (e *environment[M, C]) setSizes(m M, cpus int32, memoryMiB, diskGiB int64) {
	e.adapter.SetSizes(m, cpus, memoryMiB, diskGiB)
	m.SetAnnotations(map[string]string{clusterv1.UpdateInProgressAnnotation: ""})
}

// increased expects that a VM has got larger while it ran.
func (e *environment[M, C]) increased(name string, before VM) {
	e.t.Helper()
	e.Expect(e.vm(name)).To(And(HaveField("ID", before.ID), HaveField("On", true), HaveField("CPUs", int64(moreCPUs)), HaveField("MemoryMiB", int64(moreMemoryMiB)), HaveField("DiskGiB", int64(moreDiskGiB))))
}
