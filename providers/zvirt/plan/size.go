package plan

import (
	"k8s.io/utils/ptr"

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// architectures maps the processor architectures of the engine to those of
// Kubernetes.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64": "ppc64le", "s390x": "s390x"}

// Size returns the capacity of a VM of a spec, from the spec, its instance type
// or the template. Cluster is the processor of the engine's cluster.
func Size(m *zvirtv1.NovaZVirtMachineSpec, kind ovirt.Object, t *ovirt.Template, cluster *ovirt.CPU) hypervisor.Size {
	out := hypervisor.Size{MemoryBytes: t.Memory, DiskBytes: m.Disks.Boot.SizeGiB << 30}
	cpu := t.CPU
	if kind.CPU != nil {
		cpu, out.MemoryBytes = kind.CPU, kind.Memory
	}
	if own := hardware(m.Hardware).CPU; own != nil && own.Topology != nil {
		cpu = own
	}
	if own := m.Hardware.MemoryMiB; own != 0 {
		out.MemoryBytes = own << 20
	}
	if cpu != nil && cpu.Topology != nil {
		out.CPUs = cpu.Topology.Sockets * cpu.Topology.Cores * cpu.Topology.Threads
	}
	if cluster != nil {
		out.Architecture = architectures[cluster.Architecture]
	}
	if t.DiskAttachments == nil {
		return out
	}
	for _, a := range t.DiskAttachments.Attachments {
		if ptr.Deref(a.Bootable, false) && a.Disk != nil {
			out.DiskBytes = max(out.DiskBytes, a.Disk.ProvisionedSize)
		}
	}
	return out
}
