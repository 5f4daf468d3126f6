package vsphere

import (
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// verb is the kind of an action in vCenter.
type verb string

const (
	creating   verb = "create"
	starting   verb = "start"
	stopping   verb = "stop"
	destroying verb = "destroy"
	// detaching detaches the disks to keep from a VM that is to be deleted.
	detaching verb = "detach"
	// settling reconciles objects around the VM, such as rules and tags: the VM
	// runs on.
	settling verb = "settle"
)

// action is the last operation that the driver requested from vCenter for a
// machine.
type action struct {
	verb    verb
	message string
	at      time.Time
	// task is the vCenter task. It is not set while the request is under way.
	task ref
	// taken is the VM that already has the name.
	taken *ref
	// unseen is set when vCenter does not list the task any more.
	unseen bool
	// refused is the error with which vCenter rejected the request at once
	// because of the VM's power state.
	refused *hypervisor.Error
	// err is the reason why no request was sent after all.
	err *hypervisor.Error
	// lag is the longest time by which the inventory may lag behind a response.
	lag time.Duration
}

// busy reports whether the outcome is not known yet.
func (a *action) busy(w *world, id uuid.UUID) bool {
	if a.unseen || a.err != nil {
		return false
	}
	if a.taken != nil {
		return a.halfMade(w, *a.taken)
	}
	if a.powerRefused(w) != nil {
		return !a.powered(w, id) && time.Since(a.at) < a.lag
	}
	if a.task == (ref{}) {
		return true
	}
	task := w.tasks[a.task]
	return task == nil || !task.done() || a.lags(w, id, task)
}

// lags reports whether the inventory does not show the result of a task yet,
// but is expected to.
func (a *action) lags(w *world, id uuid.UUID, task *taskInfo) bool {
	_, known := w.byID[id]
	since := a.at
	if task.endedAt.After(since) {
		since = task.endedAt
	}
	if a.verb == destroying && task.failure == nil {
		return known && time.Since(since) < a.lag // the inventory is about to drop it
	}
	if a.verb != creating {
		return false
	}
	if taken := duplicate(task.failure); taken != nil {
		return a.halfMade(w, *taken)
	}
	if task.failure != nil {
		return false
	}
	// The VM exists; the inventory is about to show it.
	return !known && w.ids[task.result] == uuid.Nil && time.Since(since) < a.lag
}

// halfMade reports whether the VM at vm may still turn out to be ours.
func (a *action) halfMade(w *world, vm ref) bool {
	id, listed := w.ids[vm]
	return (!listed || id == uuid.Nil) && time.Since(a.at) < a.lag
}

// destroyed reports whether the action deleted the VM.
func (a *action) destroyed(w *world) bool {
	if a == nil || a.verb != destroying || a.task == (ref{}) {
		return false
	}
	task := w.tasks[a.task]
	return task != nil && task.done() && (task.failure == nil || isNotFoundFault(task.failure.Fault))
}

// failure returns the error with which the action failed, if it did.
func (a *action) failure(w *world, id uuid.UUID) *hypervisor.Error {
	if a.err != nil {
		return a.err
	}
	if a.unseen {
		return nil
	}
	if a.taken != nil {
		return a.conflict(w, id, *a.taken)
	}
	if err := a.powerRefused(w); err != nil {
		return a.stubborn(w, id, err)
	}
	task := w.tasks[a.task]
	if task == nil {
		return nil
	}
	if task.failure == nil {
		return nil
	}
	if taken := duplicate(task.failure); taken != nil && a.verb == creating {
		return a.conflict(w, id, *taken)
	}
	if a.wasDone(task.failure.Fault) {
		return nil
	}
	return faultError(task.failure.Fault, task.failure.LocalizedMessage)
}

// wasDone reports whether a fault means that there was nothing left to do.
func (a *action) wasDone(f types.BaseMethodFault) bool {
	_, gone := f.(*types.ManagedObjectNotFound)
	return gone && (a.verb == destroying || a.verb == stopping || a.verb == detaching)
}

// powerRefused returns the error with which vCenter rejected the action
// because of the VM's power state, if it did. Most likely the VM is already in
// the requested power state, and the stream is about to show it.
func (a *action) powerRefused(w *world) *hypervisor.Error {
	if a.refused != nil || a.verb == creating || a.verb == detaching {
		return a.refused
	}
	if task := w.tasks[a.task]; task != nil && task.failure != nil {
		if _, ok := task.failure.Fault.(*types.InvalidPowerState); ok {
			return faultError(task.failure.Fault, task.failure.LocalizedMessage)
		}
	}
	return nil
}

// powered reports whether the stream shows a power state in which nothing is
// left to do for the rejected action.
func (a *action) powered(w *world, id uuid.UUID) bool {
	info := w.vms[w.byID[id]]
	switch {
	case info == nil:
		return true
	case a.verb == stopping:
		return info.power == types.VirtualMachinePowerStatePoweredOff
	case a.verb == starting:
		return info.running()
	case a.verb == settling:
		return !info.running()
	default: // operations that need a VM that is powered off
		return info.power != types.VirtualMachinePowerStatePoweredOff
	}
}

// stubborn returns the failure of an action that vCenter rejected because of
// the VM's power state, while the stream keeps showing another state.
// Repeating the request at once would loop without end.
func (a *action) stubborn(w *world, id uuid.UUID, refused *hypervisor.Error) *hypervisor.Error {
	switch {
	case a.powered(w, id):
		return nil
	case a.verb == stopping:
		return failure(refused.Reason, "vCenter says that the VM is not off, and refuses to power it off: %w", refused.Err)
	case a.verb == starting:
		return failure(refused.Reason, "vCenter says that the VM is not on, and refuses to power it on: %w", refused.Err)
	default:
		return refused
	}
}

// refuse records that vCenter rejected a power operation at once. Until the
// stream shows why, no other request is sent. It returns false for any other
// action, which has failed.
func (i *inventory) refuse(id uuid.UUID, err *hypervisor.Error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	if !ok || m.act == nil || m.act.verb != starting && m.act.verb != stopping {
		return false
	}
	m.act.refused, m.act.at = err, time.Now()
	i.remind(id, m.act)
	i.tell([]uuid.UUID{id})
	return true
}

// conflict returns the error for a name that another VM has. It returns nil if
// that VM is the machine's own.
func (a *action) conflict(w *world, id uuid.UUID, taken ref) *hypervisor.Error {
	if w.ids[taken] == id {
		return nil
	}
	return failure(infrav1.NameConflictReason, "a VM with this machine's name (%s) exists in the folder and is not ours: it is left alone; rename or delete it in vCenter", taken.Value)
}

// remind requeues the machine if the inventory does not catch up with act in
// time.
func (i *inventory) remind(id uuid.UUID, act *action) {
	time.AfterFunc(i.lag, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if m := i.machines[id]; m != nil && m.act == act {
			i.changed(m.key)
		}
	})
}

// overdue returns the task of a machine that the stream should have listed by
// now. The caller has to read its outcome.
func (i *inventory) overdue(id uuid.UUID) (ref, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	switch {
	case !ok || m.act == nil || m.act.task == (ref{}) || m.act.unseen:
		return ref{}, false
	case i.outcomeUnread(id, m):
	case i.world.tasks[m.act.task] != nil || time.Since(m.act.at) < i.lag:
		return ref{}, false
	}
	m.act.at = time.Now()
	i.remind(id, m.act)
	return m.act.task, true
}

// outcomeUnread reports whether the task of a machine has ended, and its
// result or error still has to be read. The caller holds the lock.
func (i *inventory) outcomeUnread(id uuid.UUID, m *machine) bool {
	if m.act == nil || m.act.unseen {
		return false
	}
	task := i.world.tasks[m.act.task]
	if task == nil || !task.ended() || task.read {
		return false
	}
	_, known := i.world.byID[id]
	return task.failed() || m.act.verb == creating && !known
}

// doubt makes the driver read a task at once that vCenter does not list any
// more. The task has most likely ended unobserved, but the list has recent
// tasks only. The caller holds the lock.
func (i *inventory) doubt(task ref) {
	for _, m := range i.machines {
		if m.act != nil && m.act.task == task && !m.act.unseen {
			m.act.at = time.Time{}
			i.changed(m.key)
		}
	}
}

// learn records the state that was read of a task; nil means that the task
// does not exist any more.
func (i *inventory) learn(task ref, info *taskInfo) {
	i.update(func(w *world) []uuid.UUID {
		if info != nil {
			w.tasks[task] = info
		} else {
			i.unsee(task)
		}
		return nil
	})
}

// unsee records that vCenter does not list a task any more. The caller holds
// the lock.
func (i *inventory) unsee(task ref) {
	for _, m := range i.machines {
		if m.act != nil && m.act.task == task {
			m.act.unseen = true
		}
	}
}

// duplicate returns the VM that has the name, if the fault is DuplicateName.
func duplicate(f *types.LocalizedMethodFault) *ref {
	if f == nil {
		return nil
	}
	if d, ok := f.Fault.(*types.DuplicateName); ok {
		return &d.Object
	}
	return nil
}

// begin records that a request for verb is about to be sent, unless another
// action is under way.
func (i *inventory) begin(id uuid.UUID, key hypervisor.Key, v verb, message string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	if m.act != nil && m.act.busy(i.world, id) {
		return false
	}
	m.act = &action{verb: v, message: message, at: time.Now(), lag: i.lag}
	m.seen = i.look(id, m)
	return true
}

// end records vCenter's response: a task, the VM that has the name, or neither
// if the request had no effect.
func (i *inventory) end(id uuid.UUID, task ref, taken *ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.machines[id]
	if !ok || m.act == nil {
		return
	}
	if task == (ref{}) && taken == nil {
		if m.act.verb == creating {
			m.failures++
			i.made(m.key)
		}
		m.act = nil
	} else {
		m.act.task, m.act.taken, m.act.at = task, taken, time.Now()
		i.remind(id, m.act)
		if i.outcomeUnread(id, m) {
			i.changed(m.key)
		}
	}
	i.tell([]uuid.UUID{id})
}
