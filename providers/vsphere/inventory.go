package vsphere

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

type ref = types.ManagedObjectReference

// cloneTask is how vCenter describes the task of CloneVM_Task.
const cloneTask = "VirtualMachine.clone"

// taskInfo is what the stream reported about a task of any user.
type taskInfo struct {
	state       types.TaskInfoState
	entity      ref
	description string
	// endedAt is when the stream reported the end of the task.
	endedAt time.Time
	// read is set once result and failure were read, which the stream does not
	// report.
	read    bool
	result  ref
	failure *types.LocalizedMethodFault
}

// ended reports whether the task has ended.
func (t *taskInfo) ended() bool { return t.state == types.TaskInfoStateSuccess || t.failed() }

// failed reports whether the task has ended with an error. The error may still
// have to be read.
func (t *taskInfo) failed() bool { return t.state == types.TaskInfoStateError }

// done reports whether the task has ended, with success or with an error that is
// known.
func (t *taskInfo) done() bool { return t.ended() && (t.read || !t.failed()) }

// world is vCenter as one stream has told it.
type world struct {
	// ids has every VM the account sees. A VM whose UUID vCenter has not said
	// yet is half-made and has none here.
	ids  map[ref]uuid.UUID
	byID map[uuid.UUID]ref
	// copies has the other VMs with the same UUID.
	copies map[uuid.UUID][]ref
	// unread has the names of VMs whose UUID was never read: half-made ones,
	// and those that are out of vCenter's reach.
	unread map[ref]string
	// names are those of VMs whose UUID is derived.
	names map[ref]string
	// vms has those whose UUID is derived, ours among them.
	vms   map[ref]*vmInfo
	tasks map[ref]*taskInfo
	// hosts and clusters are those that VMs of ours run in.
	hosts    map[ref]*hostInfo
	clusters map[ref]*clusterInfo
	// usable is how many hosts of a compute cluster can run VMs: those that
	// respond and are not in maintenance.
	usable map[ref]int32
}

func newWorld() *world {
	return &world{
		ids: map[ref]uuid.UUID{}, byID: map[uuid.UUID]ref{}, unread: map[ref]string{}, names: map[ref]string{},
		vms: map[ref]*vmInfo{}, tasks: map[ref]*taskInfo{}, copies: map[uuid.UUID][]ref{},
		hosts: map[ref]*hostInfo{}, clusters: map[ref]*clusterInfo{}, usable: map[ref]int32{},
	}
}

// inventory is what Observe reads. It survives the loss of a session; only
// the world is learnt anew.
type inventory struct {
	changed func(hypervisor.Key)
	// made is called when the creation of a machine's VM has ended, one way or
	// the other.
	made func(hypervisor.Key)
	// lag is how long the inventory may lag behind what an answer said.
	lag time.Duration

	mu       sync.Mutex
	world    *world
	machines map[uuid.UUID]*machine
	// inherited are clones that were under way when the world was learnt and
	// that are nobody's: one of them may be of a machine that an earlier
	// process or session served. The value is set once the clone has ended and
	// its VM is about to show up.
	inherited map[ref]bool
	// groups are the machines of each group by the name of its rule.
	groups map[string]*group
	// awaited are tasks on compute clusters that somebody waits for.
	awaited map[ref]chan struct{}
	// fields are the numbers of custom attributes; nil while they are not
	// known. They are not read again before fieldsAgain.
	fields      map[string]int32
	fieldsAgain time.Time
}

// machine is a machine that was asked about.
type machine struct {
	key  hypervisor.Key
	act  *action
	seen sight
	// vm is the VM it had when it was last seen. A VM that leaves the view need
	// not be gone: the account may have lost sight of it.
	vm ref
	// rejected is the VM that its clone task created, if vCenter gave that VM
	// another instance UUID. It has the machine's name and user data, and is to
	// be deleted.
	rejected ref
	// uuidTaken is why that VM was deleted, and uuidTakenAt when.
	uuidTaken   *hypervisor.Error
	uuidTakenAt time.Time
	// going means it is being deleted.
	going bool
	// failures counts how often its VM could not be made. A restart forgets
	// them.
	failures int
	// wants is what it asks for around its VM.
	wants wants
	chores
}

func newInventory(changed func(hypervisor.Key)) *inventory {
	return &inventory{
		changed:   changed,
		made:      func(hypervisor.Key) {},
		lag:       usually.settle,
		world:     newWorld(),
		machines:  map[uuid.UUID]*machine{},
		inherited: map[ref]bool{},
		groups:    map[string]*group{},
		awaited:   map[ref]chan struct{}{},
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

// take looks at a machine's VM and hands the failure of the last action over:
// the next look does not have it. When the machine is going, it does not
// matter that its VM could not be made or started.
func (i *inventory) take(id uuid.UUID, key hypervisor.Key, going bool) sight {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	if m.going != going {
		i.ungroup(id, m)
		m.going = going
		i.regroup(id, m)
	}
	i.freshen(id, m)
	s := i.look(id, m)
	if going && m.act != nil && (m.act.verb == creating || m.act.verb == starting) {
		s.failure = nil
	}
	if s.vm.State != hypervisor.Busy && s.lost == nil && m.act != nil && !m.act.busy(i.world, id) {
		if m.act.verb == creating && s.failure != nil {
			m.failures++
		}
		m.act = nil
	}
	if s.vm.State != hypervisor.Busy && s.lost == nil {
		m.rejected = s.rejected
	}
	m.seen = s
	m.seen.failure = nil
	return s
}

// peek is take without taking.
func (i *inventory) peek(id uuid.UUID, key hypervisor.Key) (hypervisor.State, ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.look(id, i.machineOf(id, key))
	return s.vm.State, cmp.Or(s.rejected, i.world.byID[id])
}

// failures returns how often a machine's VM could not be made.
func (i *inventory) failures(id uuid.UUID) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		return m.failures
	}
	return 0
}

// keys returns all machines that were asked about.
func (i *inventory) keys() []hypervisor.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := make([]hypervisor.Key, 0, len(i.machines))
	for _, m := range i.machines {
		keys = append(keys, m.key)
	}
	return keys
}

// forget drops a machine that is gone for good.
func (i *inventory) forget(id uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		i.ungroup(id, m)
	}
	delete(i.machines, id)
}

// clonesOf reports whether a clone of template that may be anybody's is under
// way, or has a VM that nobody has seen yet.
func (i *inventory) clonesOf(template ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for task := range i.inherited {
		if t := i.world.tasks[task]; t != nil && t.entity == template {
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

// replace takes over a world that was learnt anew, and tells every machine
// that looks different in it.
func (i *inventory) replace(w *world) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w.inherit(i.world)
	i.world = w
	bound := map[ref]bool{}
	for _, m := range i.machines {
		if m.act == nil {
			continue
		}
		bound[m.act.task] = true
		if m.act.task != (ref{}) && w.tasks[m.act.task] == nil {
			i.doubt(m.act.task)
		}
	}
	before := len(i.inherited)
	clear(i.inherited)
	for task, info := range w.tasks {
		if info.description == cloneTask && !info.ended() && !bound[task] {
			i.inherited[task] = false
		}
	}
	i.tell(slices.Collect(maps.Keys(i.machines)))
	if before > 0 {
		// Whoever waited for one of them may not have to any more, and its own
		// VM looks as it did.
		i.tellAll()
	}
}

// tell queues the machines among ids whose VM looks different from what was
// seen last. The caller holds the lock.
func (i *inventory) tell(ids []uuid.UUID) {
	for _, id := range ids {
		m, ok := i.machines[id]
		if !ok {
			continue
		}
		if m.act != nil && m.act.verb == creating && !m.act.busy(i.world, id) {
			i.made(m.key)
		}
		if s := i.look(id, m); !reflect.DeepEqual(s, m.seen) {
			m.seen = s
			i.changed(m.key)
		}
	}
}

// update lets change change the world and tells those it concerns.
func (i *inventory) update(change func(*world) []uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	touched := change(i.world)
	// A task, or what another VM turned out to be, may be the last that a
	// machine waits for.
	for id, m := range i.machines {
		if m.act != nil || m.seen.vm.State == hypervisor.Busy {
			touched = append(touched, id)
		}
		if i.outcomeUnread(id, m) {
			i.changed(m.key) // its next Observe reads the task
		}
	}
	for task, ended := range i.awaited {
		if t := i.world.tasks[task]; t != nil && t.ended() {
			delete(i.awaited, task)
			close(ended)
		}
	}
	for task, ended := range i.inherited {
		t := i.world.tasks[task]
		switch {
		case t == nil || t.failed() || i.world.ids[t.result] != uuid.Nil:
			i.disinherit(task)
		case t.ended() && !ended:
			i.inherited[task] = true
			time.AfterFunc(i.lag, func() {
				i.mu.Lock()
				defer i.mu.Unlock()
				i.disinherit(task)
			})
		}
	}
	i.tell(touched)
}

// disinherit forgets a clone whose VM, if it made one, is known. It may have
// been of any machine. The caller holds the lock.
func (i *inventory) disinherit(task ref) {
	if _, ok := i.inherited[task]; !ok {
		return
	}
	delete(i.inherited, task)
	i.tellAll()
}

// tellAll queues every machine, however it looks. The caller holds the lock.
func (i *inventory) tellAll() {
	for _, m := range i.machines {
		i.changed(m.key)
	}
}
