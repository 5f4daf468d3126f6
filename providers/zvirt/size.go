package zvirt

import (
	"cmp"
	"context"

	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// architectures are the engine's names for processors, and Kubernetes'.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64": "ppc64le", "s390x": "s390x"}

// Size reports what a node made from t has: what t says, or its instance type,
// or the template in the engine.
func (c *Connector) Size(ctx context.Context, t *infrav1.NovaZVirtMachineTemplate) (hypervisor.Size, error) {
	name := clusterNameOf(t)
	if name == "" {
		unknown := failure(infrav1.WaitingForInfrastructureReason, "no cluster uses the template yet")
		unknown.Waiting = true
		return hypervisor.Size{}, unknown
	}
	cluster, err := c.clusterOf(ctx, t.Namespace, name)
	if err != nil {
		return hypervisor.Size{}, err
	}
	s, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Size{}, err
	}
	if err := s.Ready(ctx, hypervisor.Key{}); err != nil {
		return hypervisor.Size{}, err
	}
	out, err := s.size(ctx, cluster, &t.Spec.Template.Spec)
	return out, classify(s.server, err)
}

func (s *session) size(ctx context.Context, cluster *infrav1.NovaZVirtCluster, m *infrav1.NovaZVirtMachineSpec) (hypervisor.Size, error) {
	zone := ""
	if domains := cluster.Spec.FailureDomains; len(domains) > 0 {
		zone = domains[0].Name // the same size is made in all of them
	}
	at, err := plan.SiteOf(&cluster.Spec, m, zone)
	if err != nil {
		return hypervisor.Size{}, err
	}
	cl, err := s.place(ctx, at)
	if err != nil {
		return hypervisor.Size{}, err
	}
	t, err := s.template(ctx, at, cl.DataCenter.ID)
	if err != nil {
		return hypervisor.Size{}, err
	}
	cpu, memory := t.CPU, t.Memory
	if name := m.Hardware.InstanceType; name != "" {
		kind, err := s.names.Find(ctx, ovirt.InstanceTypes, name, ovirt.Any)
		if err != nil {
			return hypervisor.Size{}, unresolved(infrav1.SourceNotFoundReason, "hardware.instanceType", err)
		}
		cpu, memory = kind.CPU, kind.Memory
	}
	if own := plan.Processors(m.Hardware); own != nil && own.Topology != nil {
		cpu = own
	}
	out := hypervisor.Size{MemoryBytes: cmp.Or(m.Hardware.MemoryMiB<<20, memory), DiskBytes: m.Storage.BootDisk.SizeGiB << 30}
	if cpu != nil && cpu.Topology != nil {
		out.CPUs = cpu.Topology.Sockets * cpu.Topology.Cores * cpu.Topology.Threads
	}
	if cl.CPU != nil {
		out.Architecture = architectures[cl.CPU.Architecture]
	}
	if t.DiskAttachments != nil {
		for _, a := range t.DiskAttachments.Attachments {
			if ptr.Deref(a.Bootable, false) && a.Disk != nil {
				out.DiskBytes = max(out.DiskBytes, a.Disk.ProvisionedSize)
			}
		}
	}
	return out, nil
}
