package bed

import (
	"syscall"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// Logs is the directory with a log file for each program.
func (b *Bed) Logs() string { return b.layout.logs() }

// Hosts is the directory with a directory for each host's disk.
func (b *Bed) Hosts() string { return b.layout.path("hosts") }

// Runner boots hosts in the network of the bed, for VMs of a hypervisor that the bed does
// not simulate.
func (b *Bed) Runner() *host.Runner { return b.booting }

// Kubeconfig is the file by which an administrator reaches the management
// cluster from inside the bed.
func (b *Bed) Kubeconfig() string { return b.layout.kubeconfig("admin") }

// Program is the path of a program that the bed brought along.
func (b *Bed) Program(name string) string { return b.layout.path("bin", name) }

// Inside calls do on a thread in the bed's network namespace, so that do can
// connect to all servers of the bed.
func (b *Bed) Inside(do func() error) error {
	if b.rootless {
		return do()
	}
	return InNamespace(b.network().Netns(), do)
}

// Pid returns the process ID of a program, for instance of a manager.
func (b *Bed) Pid(name string) (int, error) { return supervisor.Pid(b.layout.pids(), name) }

// Kill sends a signal to a program. Whatever ends by it is started again,
// except for hypervisors.
func (b *Bed) Kill(name string, signal syscall.Signal) error {
	return supervisor.Signal(b.layout.pids(), name, signal)
}

// Lose destroys the management cluster, with its managers and Flux. All else
// continues to run: hypervisors, hosts and the server of repositories.
func (b *Bed) Lose() error {
	kept := []string{sourcesName}
	simulations, err := b.simulations()
	if err != nil {
		return err
	}
	for _, h := range simulations {
		kept = append(kept, h.process("").Name)
	}
	return supervisor.End(b.layout.pids(), kept...)
}
