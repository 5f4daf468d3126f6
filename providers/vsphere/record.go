package vsphere

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

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

// recordNewVM records that a machine's VM was just created by this process. The
// caller holds the lock.
func (i *inventory) recordNewVM(id uuid.UUID, m *machine) {
	vm := i.objects.ByID[id]
	if vm == (moref{}) || m.action == nil || m.action.verb != creating || m.action.task == (moref{}) {
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

// observe returns the state of a machine's VM. If its action has ended, observe
// records the failure.
func (i *inventory) observe(id uuid.UUID, key hypervisor.Key, deleting bool) observation {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	m.deleting = deleting
	i.recordNewVM(id, m)
	s := i.evaluate(id, m)
	m.lastObserved = s
	if s.vm.State == hypervisor.Busy || s.unknown != nil {
		return s
	}
	m.rejected = s.rejected
	if m.action != nil && m.action.busy(i.objects, id) {
		return s
	}
	s.failedNow = s.failure.err != nil && s.failure != m.failed
	if s.failedNow && s.failure.verb == creating {
		m.failures++
	}
	m.action, m.failed = nil, s.failure
	return s
}

// begin records that a request for verb is about to be sent, unless another
// action is under way.
func (i *inventory) begin(id uuid.UUID, key hypervisor.Key, v verb, message string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	a := action{verb: v, message: message}
	if v == upgrading {
		a.part = syncHardware
	}
	return i.beginLocked(id, i.machineOf(id, key), a)
}

func (i *inventory) beginLocked(id uuid.UUID, m *machine, a action) bool {
	if m.action != nil && m.action.busy(i.objects, id) {
		return false
	}
	a.at, a.lag = time.Now(), i.lag
	m.action, m.failed = &a, failedAction{}
	m.lastObserved = i.evaluate(id, m)
	return true
}

// beginSync records that a part of a VM that runs is about to be changed, and
// returns the VM and its compute cluster. It returns no VM if the part matches
// the machine meanwhile, or if another action is under way.
func (i *inventory) beginSync(id uuid.UUID, key hypervisor.Key, part, message string) (vm, at moref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	s := i.evaluate(id, m)
	if s.unknown != nil || s.vm.State != hypervisor.Running || !slices.Contains(s.vm.ToSync, part) ||
		!i.beginLocked(id, m, action{verb: syncing, part: part, message: message}) {
		return moref{}, moref{}
	}
	vm = i.objects.ByID[id]
	at, _ = i.objects.ComputeClusterOf(i.objects.VMs[vm])
	return vm, at
}

// rename sets the verb and message of an action once its actual step is known.
func (i *inventory) rename(id uuid.UUID, v verb, message string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil && m.action != nil {
		m.action.verb, m.action.message = v, message
		i.notifyChanged([]uuid.UUID{id})
	}
}

// end records vCenter's response: a task, the VM that has the name, or neither
// if the request had no effect.
func (i *inventory) end(id uuid.UUID, task moref, nameHolder *moref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	if !ok || m.action == nil {
		return
	}
	if task == (moref{}) && nameHolder == nil {
		if m.action.verb == creating {
			m.failures++
			i.creationEnded(m.key)
		}
		m.action = nil
	} else {
		m.action.task, m.action.nameHolder, m.action.at = task, nameHolder, time.Now()
		i.requeueAfterLag(id, m.action)
		if i.outcomeUnread(id, m) {
			i.changed(m.key)
		}
	}
	i.notifyChanged([]uuid.UUID{id})
}

// finish ends the actions of machines that started no task. err is the error
// with which they failed, if they did.
func (i *inventory) finish(err *hypervisor.Error, ids ...uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		m := i.machines[id]
		switch {
		case m == nil || m.action == nil || m.action.task != (moref{}):
		case err == nil:
			m.action = nil
		default:
			m.action.err = err
		}
	}
	i.notifyChanged(ids)
}

// recordPowerError records that vCenter rejected a power operation at once.
// Until the stream shows why, no other request is sent. It returns false for
// any other action, which has failed.
func (i *inventory) recordPowerError(id uuid.UUID, err *hypervisor.Error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	if !ok || m.action == nil || m.action.verb != starting && m.action.verb != stopping {
		return false
	}
	m.action.powerError, m.action.at = err, time.Now()
	i.requeueAfterLag(id, m.action)
	i.notifyChanged([]uuid.UUID{id})
	return true
}

// overdueTask returns the task of a machine that the stream should have listed
// by now. The caller has to read its outcome.
func (i *inventory) overdueTask(id uuid.UUID) (moref, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	switch {
	case !ok || m.action == nil || m.action.task == (moref{}) || m.action.unlisted:
		return moref{}, false
	case i.outcomeUnread(id, m):
	case i.objects.Tasks[m.action.task] != nil || time.Since(m.action.at) < i.lag:
		return moref{}, false
	}
	m.action.at = time.Now()
	i.requeueAfterLag(id, m.action)
	return m.action.task, true
}

// recordTask records the state that was read of a task; nil means that the task
// does not exist any more.
func (i *inventory) recordTask(task moref, info *cache.Task) {
	i.Update(func(o *cache.Objects) []uuid.UUID {
		if info != nil {
			o.Tasks[task] = info
		} else {
			i.recordUnlisted(task)
		}
		return nil
	})
}

// recordUnlisted records that vCenter does not list a task any more. The caller
// holds the lock.
func (i *inventory) recordUnlisted(task moref) {
	for _, m := range i.machines {
		if m.action != nil && m.action.task == task {
			m.action.unlisted = true
		}
	}
}

// recordDeleted records that vCenter has confirmed that vm is deleted.
func (i *inventory) recordDeleted(id uuid.UUID, vm moref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil && m.vm == vm {
		m.vm, m.deleted = moref{}, true
	}
}

func (i *inventory) recordVisible(id uuid.UUID, login int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		m.visibleLogin = login
	}
}

func (i *inventory) recordShutdown(id uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		m.shutdownAt = time.Now()
	}
}

// forget removes the record of a machine that was deleted.
func (i *inventory) forget(id uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range i.parts {
		p.forget(id)
	}
	delete(i.machines, id)
}
