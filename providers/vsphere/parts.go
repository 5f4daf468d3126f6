package vsphere

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// part is a kind of objects around VMs that a worker changes to match the
// machines. The inventory calls all methods with its lock held.
type part interface {
	// name is the name of the part's Syncer.
	name() string
	// set records the desired state of a machine, and whether the machine is
	// being deleted. It reports whether settings of this part have changed.
	set(id uuid.UUID, desired *spec.Desired, deleting bool) bool
	// created records that a machine's VM was created by this process.
	created(id uuid.UUID, vm ref)
	// differences lists what differs between a machine and its VM, which runs, for
	// messages. known is false if the part was not read yet.
	differences(o *cache.Objects, id uuid.UUID) (differences []string, known bool)
	// forget drops the state of a machine that was deleted.
	forget(id uuid.UUID)
}

// setDesired records the desired state of a machine. A failure of a part does
// not count any more once the settings of the part have changed.
func (i *inventory) setDesired(id uuid.UUID, key hypervisor.Key, desired *spec.Desired, deleting bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	m.name, m.deleting = desired.Name, deleting
	for _, p := range i.parts {
		if p.set(id, desired, deleting) {
			m.dropFailure(p.name())
		}
	}
}

// dropFailure drops the failure of a part, also of a change that is under way.
func (m *machine) dropFailure(part string) {
	if m.failed.part == part {
		m.failed = failedAction{}
	}
	if m.action != nil && m.action.part == part {
		m.action.outdated = true
	}
}

// recordNewVM records that a machine's VM was just created by this process. The
// caller holds the lock.
func (i *inventory) recordNewVM(id uuid.UUID, m *machine) {
	vm := i.objects.ByID[id]
	if vm == (ref{}) || m.action == nil || m.action.verb != creating || m.action.task == (ref{}) {
		return
	}
	task := i.objects.Tasks[m.action.task]
	if task == nil || !task.Ended() || task.Failed() || task.Read && task.Result != vm {
		return
	}
	for _, p := range i.parts {
		p.created(id, vm)
	}
}

// outOfSyncPrefix is the prefix of the list of objects that are out of sync.
const outOfSyncPrefix = "Out of sync: "

// compare sets the parts of a machine's VM that are out of sync, and returns
// the parts that were not read yet. The caller holds the lock.
func (i *inventory) compare(id uuid.UUID, m *machine, to *hypervisor.VM) (unread []string) {
	if m.deleting {
		return nil
	}
	var all []string
	for _, p := range i.parts {
		differences, known := p.differences(i.objects, id)
		if !known {
			unread = append(unread, p.name())
		}
		if len(differences) > 0 {
			all, to.ToSync = append(all, differences...), append(to.ToSync, p.name())
		}
	}
	if len(all) > 0 {
		to.OutOfSync = outOfSyncPrefix + strings.Join(all, ", ")
	}
	return unread
}

// locked calls change with the lock held, for the state of a part, and queues
// the machines that it returns if their VMs look different.
func (i *inventory) locked(change func(*cache.Objects) []uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.notifyChanged(change(i.objects))
}

// beginSync records that a part of a VM that runs is about to be changed, and
// returns the VM and its compute cluster. It returns no VM if the part matches
// the machine meanwhile, or if another action is under way.
func (i *inventory) beginSync(id uuid.UUID, key hypervisor.Key, part, message string) (vm, at ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	s := i.evaluate(id, m)
	if s.unknown != nil || s.vm.State != hypervisor.Running || !slices.Contains(s.vm.ToSync, part) ||
		!i.beginLocked(id, m, action{verb: syncing, part: part, message: message}) {
		return ref{}, ref{}
	}
	vm = i.objects.ByID[id]
	at, _ = i.objects.ComputeClusterOf(i.objects.VMs[vm])
	return vm, at
}

// finish ends the actions of machines that started no task. err is the error
// with which they failed, if they did.
func (i *inventory) finish(err *hypervisor.Error, ids ...uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		m := i.machines[id]
		switch {
		case m == nil || m.action == nil || m.action.task != (ref{}):
		case err == nil:
			m.action = nil
		default:
			m.action.err = err
		}
	}
	i.notifyChanged(ids)
}
