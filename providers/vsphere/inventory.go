package vsphere

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// inventory is the cache that Observe reads. It survives the loss of a
// session; only the objects are read again.
type inventory struct {
	changed func(hypervisor.Key)
	// creationEnded is called when the creation of a machine's VM has ended, with
	// or without success.
	creationEnded func(hypervisor.Key)
	// lag is the longest time by which the inventory may lag behind a response.
	lag time.Duration

	mu       sync.Mutex
	objects  *cache.Objects
	machines map[uuid.UUID]*machine
	// inherited are clones that were under way when the objects were read and that
	// no machine here requested: one of them may be of a machine that an
	// earlier process or session served. The value is set once the clone has
	// ended and the inventory is about to show its VM.
	inherited map[ref]bool
	// awaitedTasks are tasks on compute clusters for which a worker waits.
	awaitedTasks map[ref]chan struct{}
	// parts are the objects around VMs that workers change.
	parts []part
}

// machine is the record of a machine that the controller has observed.
type machine struct {
	key    hypervisor.Key
	action *action
	// failed is the failure of the last action, until the next action begins.
	failed       failedAction
	lastObserved observation
	// vm is the VM that the machine had when it was last observed. A VM that
	// the account cannot see any more need not be deleted: the account may have
	// lost its permission.
	vm ref
	// rejected is the VM that its clone task created, if vCenter gave that VM
	// another instance UUID. It has the machine's name and user data, and is to
	// be deleted.
	rejected ref
	// uuidTaken is the reason why that VM was deleted, and uuidTakenAt is the
	// time.
	uuidTaken   *hypervisor.Error
	uuidTakenAt time.Time
	// deleting means that the machine is being deleted.
	deleting bool
	// failures counts the failed creations of its VM. It does not survive a
	// restart.
	failures int
	// name is the name of its VM.
	name string
	// shutdownAt is when a shutdown of the guest was last requested.
	shutdownAt time.Time
	// deleted means that vCenter has confirmed that the VM is deleted.
	deleted bool
	// visibleLogin is the login with which the driver has verified that the
	// account would see the VM if it existed.
	visibleLogin int
}

func newInventory(changed func(hypervisor.Key)) *inventory {
	return &inventory{
		changed:       changed,
		creationEnded: func(hypervisor.Key) {},
		lag:           vcenter.DefaultTimeouts.Lag,
		objects:       cache.NewObjects(),
		machines:      map[uuid.UUID]*machine{},
		inherited:     map[ref]bool{},
		awaitedTasks:  map[ref]chan struct{}{},
	}
}

// machineOf returns the record of a machine. The caller holds the lock.
func (i *inventory) machineOf(id uuid.UUID, key hypervisor.Key) *machine {
	m, ok := i.machines[id]
	if !ok {
		m = &machine{key: key}
		i.machines[id] = m
	}
	return m
}

// failedAction is an action that ended with an error.
type failedAction struct {
	verb verb
	part string
	err  *hypervisor.Error
}

// lastFailure returns the failure of the machine's last action. When the
// machine is being deleted, a failed creation, start or change of a part of its
// VM does not matter.
func (m *machine) lastFailure(o *cache.Objects, id uuid.UUID) failedAction {
	last := m.failed
	if m.action != nil && m.action.outdated {
		return failedAction{}
	}
	if m.action != nil {
		last = failedAction{verb: m.action.verb, part: m.action.part, err: m.action.failure(o, id)}
	}
	if m.deleting && (last.verb == creating || last.verb == starting || last.part != "") {
		return failedAction{}
	}
	return last
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

// state returns the state of a machine's VM, and the VM.
func (i *inventory) state(id uuid.UUID, key hypervisor.Key) (hypervisor.State, ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.evaluate(id, i.machineOf(id, key))
	return s.vm.State, cmp.Or(s.rejected, i.objects.ByID[id])
}

// failures returns the number of failed creations of a machine's VM.
func (i *inventory) failures(id uuid.UUID) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		return m.failures
	}
	return 0
}

// keys returns all machines that were observed.
func (i *inventory) keys() []hypervisor.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := make([]hypervisor.Key, 0, len(i.machines))
	for _, m := range i.machines {
		keys = append(keys, m.key)
	}
	return keys
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

// clonesOf reports whether there is a clone of template that may belong to any
// machine, and that is under way or whose VM is not in the inventory yet.
func (i *inventory) clonesOf(template ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for task := range i.inherited {
		if t := i.objects.Tasks[task]; t != nil && t.Entity == template {
			return true
		}
	}
	return false
}

// anyClones reports whether clonesOf can be true for any template.
func (i *inventory) anyClones() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.inherited) > 0
}

// Replace stores objects that were read again, and queues every machine whose
// VM looks different in it.
func (i *inventory) Replace(o *cache.Objects) {
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

// notifyChanged queues the machines among ids whose VM looks different from the
// last observation. The caller holds the lock.
func (i *inventory) notifyChanged(ids []uuid.UUID) {
	for _, id := range ids {
		m, ok := i.machines[id]
		if !ok {
			continue
		}
		if m.action != nil && m.action.verb == creating && !m.action.busy(i.objects, id) {
			i.creationEnded(m.key)
		}
		if s := i.evaluate(id, m); !reflect.DeepEqual(s, m.lastObserved) {
			m.lastObserved = s
			i.changed(m.key)
		}
	}
}

// Update calls change to change the objects and queues the affected machines.
func (i *inventory) Update(change func(*cache.Objects) []uuid.UUID) {
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
		if m.action != nil || m.lastObserved.vm.State == hypervisor.Busy {
			touched = append(touched, id)
		}
		if i.outcomeUnread(id, m) {
			i.changed(m.key) // its next Observe reads the task
		}
	}
	for task, ended := range i.awaitedTasks {
		if t := i.objects.Tasks[task]; t != nil && t.Ended() {
			delete(i.awaitedTasks, task)
			close(ended)
		}
	}
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
	i.notifyChanged(touched)
}

// removeInherited removes a clone whose VM, if it created one, is known. It may
// have been of any machine. The caller holds the lock.
func (i *inventory) removeInherited(task ref) {
	if _, ok := i.inherited[task]; !ok {
		return
	}
	delete(i.inherited, task)
	i.notifyAll()
}

// notifyAll queues every machine, even if its VM looks as before. The caller
// holds the lock.
func (i *inventory) notifyAll() {
	for _, m := range i.machines {
		i.changed(m.key)
	}
}

// UnreadTasks returns the inherited clones that have ended with success
// and whose VM is not known.
func (i *inventory) UnreadTasks() (tasks []ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for task := range i.inherited {
		if t := i.objects.Tasks[task]; t != nil && t.Ended() && !t.Read {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// View calls read with the objects.
func (i *inventory) View(read func(*cache.Objects)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	read(i.objects)
}

// readIfStale reads the settings of a compute cluster if they may be out of
// date: after a failure, or when vCenter reported only a part of a change.
func (i *inventory) readIfStale(ctx context.Context, c *vim25.Client, at ref) error {
	i.mu.Lock()
	cluster := i.objects.Clusters[at]
	stale := cluster != nil && cluster.Stale
	i.mu.Unlock()
	if !stale {
		return nil
	}
	return cache.ReadCluster(ctx, c, i, at)
}

// awaitTask returns a channel that is closed when a task has ended.
func (i *inventory) awaitTask(task ref) <-chan struct{} {
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

// endAwait drops the channel of a task.
func (i *inventory) endAwait(task ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.awaitedTasks, task)
}
