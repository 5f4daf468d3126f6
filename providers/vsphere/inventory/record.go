package inventory

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// SetDesired records the desired state of a machine. A failure of a part does
// not count any more once the settings of the part have changed.
func (i *Inventory) SetDesired(id uuid.UUID, key hypervisor.Key, desired *spec.Desired, deleting bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	m.name, m.deleting = desired.Name, deleting
	for _, p := range i.parts {
		if p.Set(id, desired, deleting) {
			m.dropFailure(p.Name())
		}
	}
}

// recordNewVM records that a machine's VM was just created by this process. The
// caller holds the lock.
func (i *Inventory) recordNewVM(id uuid.UUID, m *machine) {
	vm := i.objects.ByID[id]
	if vm == (ref{}) || m.action == nil || m.action.verb != Creating || m.action.task == (ref{}) {
		return
	}
	task := i.objects.Tasks[m.action.task]
	if task == nil || !task.Ended() || task.Failed() || task.Read && task.Result != vm {
		return
	}
	for _, p := range i.parts {
		p.Created(id, vm)
	}
}

// Observe returns the state of a machine's VM. If its action has ended, observe
// records the failure.
func (i *Inventory) Observe(id uuid.UUID, key hypervisor.Key, deleting bool) Observation {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	m.deleting = deleting
	i.recordNewVM(id, m)
	s := i.evaluate(id, m)
	m.lastObserved = s
	if s.VM.State == hypervisor.Busy || s.Unknown != nil {
		return s
	}
	m.rejected = s.rejected
	if m.action != nil && m.action.busy(i.objects, id) {
		return s
	}
	s.FailedNow = s.Failure.Err != nil && s.Failure != m.failed
	if s.FailedNow && s.Failure.verb == Creating {
		m.failures++
	}
	m.action, m.failed = nil, s.Failure
	return s
}

// Begin records that a request for verb is about to be sent, unless another
// action is under way.
func (i *Inventory) Begin(id uuid.UUID, key hypervisor.Key, v Verb, message string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	a := action{verb: v, message: message}
	if v == Upgrading {
		a.part = SyncHardware
	}
	return i.beginLocked(id, i.machineOf(id, key), a)
}

func (i *Inventory) beginLocked(id uuid.UUID, m *machine, a action) bool {
	if m.action != nil && m.action.busy(i.objects, id) {
		return false
	}
	a.at, a.lag = time.Now(), i.lag
	m.action, m.failed = &a, FailedAction{}
	m.lastObserved = i.evaluate(id, m)
	return true
}

// BeginSync records that a part of a VM that runs is about to be changed, and
// returns the VM and its compute cluster. It returns no VM if the part matches
// the machine meanwhile, or if another action is under way.
func (i *Inventory) BeginSync(id uuid.UUID, key hypervisor.Key, part, message string) (vm, at types.ManagedObjectReference) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	s := i.evaluate(id, m)
	if s.Unknown != nil || s.VM.State != hypervisor.Running || !slices.Contains(s.VM.ToSync, part) ||
		!i.beginLocked(id, m, action{verb: Syncing, part: part, message: message}) {
		return ref{}, ref{}
	}
	vm = i.objects.ByID[id]
	at, _ = i.objects.ComputeClusterOf(i.objects.VMs[vm])
	return vm, at
}

// Rename sets the verb and message of an action once its actual step is known.
func (i *Inventory) Rename(id uuid.UUID, v Verb, message string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil && m.action != nil {
		m.action.verb, m.action.message = v, message
		i.notifyChanged([]uuid.UUID{id})
	}
}

// End records vCenter's response: a task, the VM that has the name, or neither
// if the request had no effect.
func (i *Inventory) End(id uuid.UUID, task ref, nameHolder *ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	if !ok || m.action == nil {
		return
	}
	if task == (ref{}) && nameHolder == nil {
		if m.action.verb == Creating {
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

// Finish ends the actions of machines that started no task. err is the error
// with which they failed, if they did.
func (i *Inventory) Finish(err *hypervisor.Error, ids ...uuid.UUID) {
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

// RecordPowerError records that vCenter rejected a power operation at once.
// Until the stream shows why, no other request is sent. It returns false for
// any other action, which has failed.
func (i *Inventory) RecordPowerError(id uuid.UUID, err *hypervisor.Error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	if !ok || m.action == nil || m.action.verb != Starting && m.action.verb != Stopping {
		return false
	}
	m.action.powerError, m.action.at = err, time.Now()
	i.requeueAfterLag(id, m.action)
	i.notifyChanged([]uuid.UUID{id})
	return true
}

// OverdueTask returns the task of a machine that the stream should have listed
// by now. The caller has to read its outcome.
func (i *Inventory) OverdueTask(id uuid.UUID) (types.ManagedObjectReference, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	switch {
	case !ok || m.action == nil || m.action.task == (ref{}) || m.action.unlisted:
		return ref{}, false
	case i.outcomeUnread(id, m):
	case i.objects.Tasks[m.action.task] != nil || time.Since(m.action.at) < i.lag:
		return ref{}, false
	}
	m.action.at = time.Now()
	i.requeueAfterLag(id, m.action)
	return m.action.task, true
}

// RecordTask records the state that was read of a task; nil means that the task
// does not exist any more.
func (i *Inventory) RecordTask(task ref, info *cache.Task) {
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
func (i *Inventory) recordUnlisted(task ref) {
	for _, m := range i.machines {
		if m.action != nil && m.action.task == task {
			m.action.unlisted = true
		}
	}
}

// RecordDeleted records that vCenter has confirmed that vm is deleted.
func (i *Inventory) RecordDeleted(id uuid.UUID, vm ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil && m.vm == vm {
		m.vm, m.deleted = ref{}, true
	}
}

// RecordVisible records that a login may see a machine's VM.
func (i *Inventory) RecordVisible(id uuid.UUID, login int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		m.visibleLogin = login
	}
}

// RecordShutdown records that the guest was requested to shut down now.
func (i *Inventory) RecordShutdown(id uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		m.shutdownAt = time.Now()
	}
}

// Forget removes the record of a machine that was deleted.
func (i *Inventory) Forget(id uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range i.parts {
		p.Forget(id)
	}
	delete(i.machines, id)
}
