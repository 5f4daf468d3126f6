package inventory

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// Inventory is the cache that Observe reads. It survives the loss of a
// session; only the objects are read again.
type Inventory struct {
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
	parts []Part
}

// Part is a kind of objects around VMs that a worker changes to match the
// machines. The inventory calls all methods with its lock held.
type Part interface {
	// Name is the name of the part's Syncer.
	Name() string
	// Set records the desired state of a machine, and whether the machine is
	// being deleted. It reports whether settings of this part have changed.
	Set(id uuid.UUID, desired *spec.Desired, deleting bool) bool
	// Created records that a machine's VM was created by this process.
	Created(id uuid.UUID, vm ref)
	// Differences lists the differences between a machine and its VM, which runs, for
	// messages. known is false if the part was not read yet.
	Differences(o *cache.Objects, id uuid.UUID) (differences []string, known bool)
	// Forget drops the state of a machine that was deleted.
	Forget(id uuid.UUID)
}

// machine is the record of a machine that the controller has observed.
type machine struct {
	key    hypervisor.Key
	action *action
	// failed is the failure of the last action, until the next action begins.
	failed       FailedAction
	lastObserved Observation
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

// New returns an inventory without objects. changed is called with a
// machine that may look different, and creationEnded when the creation of its
// VM has ended, with or without success.
func New(changed, creationEnded func(hypervisor.Key), lag time.Duration) *Inventory {
	return &Inventory{
		changed:       changed,
		creationEnded: creationEnded,
		lag:           lag,
		objects:       cache.NewObjects(),
		machines:      map[uuid.UUID]*machine{},
		inherited:     map[ref]bool{},
		awaitedTasks:  map[ref]chan struct{}{},
	}
}

// machineOf returns the record of a machine. The caller holds the lock.
func (i *Inventory) machineOf(id uuid.UUID, key hypervisor.Key) *machine {
	m, ok := i.machines[id]
	if !ok {
		m = &machine{key: key}
		i.machines[id] = m
	}
	return m
}

// FailedAction is an action that ended with an error.
type FailedAction struct {
	verb Verb
	Part string
	Err  *hypervisor.Error
}

// matters reports whether the action may still be repeated for a VM that runs.
func (f FailedAction) matters(vm *hypervisor.VM) bool {
	switch f.verb {
	case Creating, Starting, Upgrading:
		return false
	case Syncing:
		return slices.Contains(vm.ToSync, f.Part)
	default:
		return true
	}
}

// lastFailure returns the failure of the machine's last action. When the
// machine is being deleted, a failed creation, start or change of a part of its
// VM does not matter.
func (m *machine) lastFailure(o *cache.Objects, id uuid.UUID) FailedAction {
	last := m.failed
	if m.action != nil && m.action.outdated {
		return FailedAction{}
	}
	if m.action != nil {
		last = FailedAction{verb: m.action.verb, Part: m.action.part, Err: m.action.failure(o, id)}
	}
	if m.deleting && (last.verb == Creating || last.verb == Starting || last.Part != "") {
		return FailedAction{}
	}
	return last
}

// dropFailure drops the failure of a part, also of a change that is under way.
func (m *machine) dropFailure(part string) {
	if m.failed.Part == part {
		m.failed = FailedAction{}
	}
	if m.action != nil && m.action.part == part {
		m.action.outdated = true
	}
}

// SetParts sets the objects around VMs that workers change.
func (i *Inventory) SetParts(parts ...Part) { i.parts = parts }
