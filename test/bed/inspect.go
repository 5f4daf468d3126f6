package bed

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
)

// Logs is the directory with a log file for each program.
func (b *Bed) Logs() string { return b.layout.logs() }

// Hosts is the directory with a directory for each host's disk.
func (b *Bed) Hosts() string { return b.layout.path("hosts") }

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
	return inNamespace(b.network().Netns(), do)
}

// Pid returns the process ID of a program, for instance of a manager.
func (b *Bed) Pid(name string) (int, error) { return supervisor.Pid(b.layout.pids(), name) }

// Kill sends a signal to a program. Whatever ends by it is started again,
// except for hypervisors.
func (b *Bed) Kill(name string, signal syscall.Signal) error {
	pid, err := b.Pid(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", signal, name, err)
	}
	return nil
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
	return endSupervised(b.layout, kept...)
}

// endSupervised ends a supervisor and its programs except for those that are
// kept.
func endSupervised(l layout, kept ...string) error {
	programs, err := supervisor.Names(l.pids())
	if err != nil {
		return err
	}
	// The supervisor first: it would start the others again.
	var errs []error
	for _, name := range append([]string{supervisor.Self}, programs...) {
		if slices.Contains(kept, name) {
			continue
		}
		pid, err := supervisor.Pid(l.pids(), name)
		if err == nil {
			err = end(pid)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("ending %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// end kills a process, unless it has ended.
func end(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}
