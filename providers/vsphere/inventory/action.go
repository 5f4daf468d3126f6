package inventory

import (
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

type ref = types.ManagedObjectReference

// Verb is the kind of an action in vCenter.
type Verb string

// The verbs of actions.
const (
	Creating   Verb = "create"
	Starting   Verb = "start"
	Stopping   Verb = "stop"
	Destroying Verb = "destroy"
	// Detaching detaches the disks to keep from a VM that is to be deleted.
	Detaching Verb = "detach"
	// Syncing reconciles objects around the VM, such as rules and tags: the VM
	// runs on.
	Syncing Verb = "sync"
	// Upgrading upgrades the hardware of a VM.
	Upgrading Verb = "upgrade"
)

// action is the last operation that the driver requested from vCenter for a
// machine.
type action struct {
	verb    Verb
	message string
	// part is the part of the VM that is changed, if the action changes one.
	part string
	at   time.Time
	// task is the vCenter task. It is not set while the request is under way.
	task ref
	// nameHolder is the VM that already has the name.
	nameHolder *ref
	// unlisted is set when vCenter does not list the task any more.
	unlisted bool
	// powerError is the error with which vCenter rejected the request at once
	// because of the VM's power state.
	powerError *hypervisor.Error
	// err is the reason why no request was sent after all.
	err *hypervisor.Error
	// outdated is set when the settings of the part have changed since: a failure
	// does not count any more.
	outdated bool
	// lag is the longest time by which the inventory may lag behind a response.
	lag time.Duration
}

// busy reports whether the outcome is not known yet.
func (a *action) busy(o *cache.Objects, id uuid.UUID) bool {
	if a.unlisted || a.err != nil {
		return false
	}
	if a.nameHolder != nil {
		return a.mayBecomeOwn(o, *a.nameHolder)
	}
	if a.powerRejection(o) != nil {
		return !a.powerReached(o, id) && time.Since(a.at) < a.lag
	}
	if a.task == (ref{}) {
		return true
	}
	task := o.Tasks[a.task]
	return task == nil || !task.Done() || a.isLagging(o, id, task)
}

// isLagging reports whether the inventory does not show the result of a task
// yet, but is expected to.
func (a *action) isLagging(o *cache.Objects, id uuid.UUID, task *cache.Task) bool {
	_, known := o.ByID[id]
	since := a.at
	if task.EndedAt.After(since) {
		since = task.EndedAt
	}
	if a.verb == Destroying && task.Failure == nil {
		return known && time.Since(since) < a.lag // the inventory is about to drop it
	}
	if a.verb != Creating {
		return false
	}
	if nameHolder := duplicate(task.Failure); nameHolder != nil {
		return a.mayBecomeOwn(o, *nameHolder)
	}
	if task.Failure != nil {
		return false
	}
	// The VM exists; the inventory is about to show it.
	return !known && o.IDs[task.Result] == uuid.Nil && time.Since(since) < a.lag
}

// mayBecomeOwn reports whether the VM at vm may still turn out to be ours.
func (a *action) mayBecomeOwn(o *cache.Objects, vm ref) bool {
	id, listed := o.IDs[vm]
	return (!listed || id == uuid.Nil) && time.Since(a.at) < a.lag
}

// destroyed reports whether the action deleted the VM.
func (a *action) destroyed(o *cache.Objects) bool {
	if a == nil || a.verb != Destroying || a.task == (ref{}) {
		return false
	}
	task := o.Tasks[a.task]
	return task != nil && task.Done() && (task.Failure == nil || vcenter.IsNotFoundFault(task.Failure.Fault))
}

// failure returns the error with which the action failed, if it did.
func (a *action) failure(o *cache.Objects, id uuid.UUID) *hypervisor.Error {
	if a.err != nil {
		return a.err
	}
	if a.unlisted {
		return nil
	}
	if a.nameHolder != nil {
		return a.conflict(o, id, *a.nameHolder)
	}
	if err := a.powerRejection(o); err != nil {
		return a.powerFailure(o, id, err)
	}
	task := o.Tasks[a.task]
	if task == nil {
		return nil
	}
	if task.Failure == nil {
		return nil
	}
	if nameHolder := duplicate(task.Failure); nameHolder != nil && a.verb == Creating {
		return a.conflict(o, id, *nameHolder)
	}
	if a.isAlreadyDone(task.Failure.Fault) {
		return nil
	}
	return vcenter.FaultError(task.Failure.Fault, task.Failure.LocalizedMessage)
}

// isAlreadyDone reports whether a fault means that there was nothing left to
// do.
func (a *action) isAlreadyDone(f types.BaseMethodFault) bool {
	_, gone := f.(*types.ManagedObjectNotFound)
	return gone && (a.verb == Destroying || a.verb == Stopping || a.verb == Detaching)
}

// powerRejection returns the error with which vCenter rejected the action
// because of the VM's power state, if it did. Most likely the VM is already in
// the requested power state, and the stream is about to show it.
func (a *action) powerRejection(o *cache.Objects) *hypervisor.Error {
	if a.powerError != nil || a.verb == Creating || a.verb == Detaching {
		return a.powerError
	}
	if task := o.Tasks[a.task]; task != nil && task.Failure != nil {
		if _, ok := task.Failure.Fault.(*types.InvalidPowerState); ok {
			return vcenter.FaultError(task.Failure.Fault, task.Failure.LocalizedMessage)
		}
	}
	return nil
}

// powerReached reports whether the stream shows a power state in which nothing
// is left to do for the rejected action.
func (a *action) powerReached(o *cache.Objects, id uuid.UUID) bool {
	info := o.VMs[o.ByID[id]]
	switch {
	case info == nil:
		return true
	case a.verb == Stopping:
		return info.Power == types.VirtualMachinePowerStatePoweredOff
	case a.verb == Starting:
		return info.Running()
	case a.verb == Syncing:
		return !info.Running()
	default: // operations that need a VM that is powered off
		return info.Power != types.VirtualMachinePowerStatePoweredOff
	}
}

// powerFailure returns the failure of an action that vCenter rejected because
// of the VM's power state, while the stream keeps showing another state.
// Repeating the request at once would loop without end.
func (a *action) powerFailure(o *cache.Objects, id uuid.UUID, rejection *hypervisor.Error) *hypervisor.Error {
	switch {
	case a.powerReached(o, id):
		return nil
	case a.verb == Stopping:
		return hypervisor.Failure(rejection.Reason, "vCenter shows that the VM is not powered off, but rejected the power-off: %w", rejection.Err)
	case a.verb == Starting:
		return hypervisor.Failure(rejection.Reason, "vCenter shows that the VM is not powered on, but rejected the power-on: %w", rejection.Err)
	default:
		return rejection
	}
}

// conflict returns the error for a name that another VM has. It returns nil if
// that VM is the machine's own.
func (a *action) conflict(o *cache.Objects, id uuid.UUID, nameHolder ref) *hypervisor.Error {
	if o.IDs[nameHolder] == id {
		return nil
	}
	return hypervisor.Failure(infrav1.NameConflictReason, "a VM with this machine's name (%s) exists in the folder and does not belong to this machine: rename or delete it in vCenter", nameHolder.Value)
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

// rejected returns the VM that a clone task created with another instance
// UUID.
func (a *action) rejected(o *cache.Objects, id uuid.UUID) ref {
	if a == nil || a.verb != Creating || a.task == (ref{}) {
		return ref{}
	}
	task := o.Tasks[a.task]
	if task == nil || !task.Done() || task.Failed() {
		return ref{}
	}
	if other := o.IDs[task.Result]; other == uuid.Nil || other == id {
		return ref{}
	}
	return task.Result
}
