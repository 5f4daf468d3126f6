package inventory

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
)

// notifyChanged queues the machines among ids whose VM looks different from the
// last observation. The caller holds the lock.
func (i *Inventory) notifyChanged(ids []uuid.UUID) {
	for _, id := range ids {
		m, ok := i.machines[id]
		if !ok {
			continue
		}
		if m.action != nil && m.action.verb == Creating && !m.action.busy(i.objects, id) {
			i.creationEnded(m.key)
		}
		if s := i.evaluate(id, m); !reflect.DeepEqual(s, m.lastObserved) {
			m.lastObserved = s
			i.changed(m.key)
		}
	}
}

// notifyAll queues every machine, even if its VM looks as before. The caller
// holds the lock.
func (i *Inventory) notifyAll() {
	for _, m := range i.machines {
		i.changed(m.key)
	}
}

// removeInherited removes a clone whose VM, if it created one, is known. It may
// have been of any machine. The caller holds the lock.
func (i *Inventory) removeInherited(task ref) {
	if _, ok := i.inherited[task]; !ok {
		return
	}
	delete(i.inherited, task)
	i.notifyAll()
}

// outcomeUnread reports whether the task of a machine has ended, and its
// result or error still has to be read. The caller holds the lock.
func (i *Inventory) outcomeUnread(id uuid.UUID, m *machine) bool {
	if m.action == nil || m.action.unlisted {
		return false
	}
	task := i.objects.Tasks[m.action.task]
	if task == nil || !task.Ended() || task.Read {
		return false
	}
	_, known := i.objects.ByID[id]
	return task.Failed() || m.action.verb == Creating && !known
}

// recheckTask makes the driver read a task at once that vCenter does not list
// any more. The task has most likely ended unobserved, but the list has recent
// tasks only. The caller holds the lock.
func (i *Inventory) recheckTask(task ref) {
	for _, m := range i.machines {
		if m.action != nil && m.action.task == task && !m.action.unlisted {
			m.action.at = time.Time{}
			i.changed(m.key)
		}
	}
}

// requeueAfterLag requeues the machine if the inventory does not catch up with
// the action in time.
func (i *Inventory) requeueAfterLag(id uuid.UUID, current *action) {
	time.AfterFunc(i.lag, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if m := i.machines[id]; m != nil && m.action == current {
			i.changed(m.key)
		}
	})
}

// Replace stores objects that were read again, and queues every machine whose
// VM looks different in it.
func (i *Inventory) Replace(o *cache.Objects) {
	i.mu.Lock()
	defer i.mu.Unlock()
	o.KeepUUIDs(i.objects)
	o.Unlisted = nil
	i.objects = o
	bound := map[ref]bool{}
	for _, m := range i.machines {
		if m.action == nil {
			continue
		}
		bound[m.action.task] = true
		if m.action.task != (ref{}) && o.Tasks[m.action.task] == nil {
			i.recheckTask(m.action.task)
		}
	}
	before := len(i.inherited)
	clear(i.inherited)
	for task, info := range o.Tasks {
		if info.Description == cache.CloneTask && !info.Ended() && !bound[task] {
			i.inherited[task] = false
		}
	}
	i.notifyChanged(slices.Collect(maps.Keys(i.machines)))
	if before > 0 {
		// Machines that waited for one of them may not have to wait any more,
		// although their own VMs look as before.
		i.notifyAll()
	}
}

// Update calls change to change the objects and queues the affected machines.
func (i *Inventory) Update(change func(*cache.Objects) []uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	touched := change(i.objects)
	for _, task := range i.objects.Unlisted {
		if i.objects.Tasks[task] == nil {
			i.recheckTask(task)
		}
	}
	i.objects.Unlisted = nil
	// A machine may wait only for this task, or for the UUID of another VM.
	for id, m := range i.machines {
		if m.action != nil || m.lastObserved.VM.State == hypervisor.Busy {
			touched = append(touched, id)
		}
		if i.outcomeUnread(id, m) {
			i.changed(m.key) // its next Observe reads the task
		}
	}
	i.endAwaited()
	i.expireInherited()
	i.notifyChanged(touched)
}

// endAwaited reports the awaited tasks that have ended.
func (i *Inventory) endAwaited() {
	for task, ended := range i.awaitedTasks {
		if t := i.objects.Tasks[task]; t != nil && t.Ended() {
			delete(i.awaitedTasks, task)
			close(ended)
		}
	}
}

// expireInherited removes the inherited clones whose outcome is known, or that
// ended some time ago.
func (i *Inventory) expireInherited() {
	for task, ended := range i.inherited {
		t := i.objects.Tasks[task]
		switch {
		case t == nil || t.Failed() || i.objects.IDs[t.Result] != uuid.Nil:
			i.removeInherited(task)
		case t.Ended() && !ended:
			i.inherited[task] = true
			time.AfterFunc(i.lag, func() {
				i.mu.Lock()
				defer i.mu.Unlock()
				i.removeInherited(task)
			})
		}
	}
}

// View calls read with the objects.
func (i *Inventory) View(read func(*cache.Objects)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	read(i.objects)
}

// UnreadTasks returns the inherited clones that have ended with success
// and whose VM is not known.
func (i *Inventory) UnreadTasks() (tasks []types.ManagedObjectReference) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for task := range i.inherited {
		if t := i.objects.Tasks[task]; t != nil && t.Ended() && !t.Read {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// Locked calls change with the lock held, for the state of a part, and queues
// the machines that it returns if their VMs look different.
func (i *Inventory) Locked(change func(*cache.Objects) []uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.notifyChanged(change(i.objects))
}

// ReadIfStale reads the settings of a compute cluster if they may be out of
// date: after a failure, or when vCenter reported only a part of a change.
func (i *Inventory) ReadIfStale(ctx context.Context, c *vim25.Client, at ref) error {
	i.mu.Lock()
	cluster := i.objects.Clusters[at]
	stale := cluster != nil && cluster.Stale
	i.mu.Unlock()
	if !stale {
		return nil
	}
	return cache.ReadCluster(ctx, c, i, at)
}

// AwaitTask returns a channel that is closed when a task has ended.
func (i *Inventory) AwaitTask(task ref) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	ended := make(chan struct{})
	if t := i.objects.Tasks[task]; t != nil && t.Ended() {
		close(ended)
		return ended
	}
	i.awaitedTasks[task] = ended
	return ended
}

// EndAwait drops the channel of a task.
func (i *Inventory) EndAwait(task ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.awaitedTasks, task)
}
