package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// action is the one thing that a reconcile does about the VM.
type action string

const (
	create        action = "Create"
	start         action = "Start"
	syncVM        action = "Sync"
	wait          action = "Wait"
	publish       action = "Publish"
	reportMissing action = "ReportMissing"
	idle          action = "Idle"
	shutdown      action = "Shutdown"
	destroy       action = "Destroy"
	release       action = "Release"
)

// lifecycle is the state of a machine apart from its VM.
type lifecycle struct {
	// deleting means that the machine is being deleted.
	deleting bool
	// softShutdown means that, during the deletion, the guest may still power itself off.
	softShutdown bool
	// machineDeleting means that Cluster API is about to delete the machine: its node is being
	// drained, or a hook blocks the deletion.
	machineDeleting bool
	// provisioned means that the machine's VM was up before.
	provisioned bool
	// syncDue means that a part of the VM is to be changed to match the machine.
	syncDue bool
}

// pendingSyncers returns the syncers whose part of the VM differs from the machine. Before the VM runs
// for the first time, and before its node joins, some have to wait.
func pendingSyncers[M any](syncers []hypervisor.Syncer[M], vm *hypervisor.VM, joined bool) []hypervisor.Syncer[M] {
	return slices.DeleteFunc(slices.Clone(syncers), func(s hypervisor.Syncer[M]) bool {
		return !s.Pending(vm) || s.AfterJoin && (!joined || vm.State != hypervisor.Running)
	})
}

// nextSyncer returns the syncer that is due: the first one whose retry is not delayed, or else the
// one that is due first. A part that cannot be changed does not block the others.
func nextSyncer[M any](pending []hypervisor.Syncer[M], delay func(hypervisor.Syncer[M]) time.Duration) (hypervisor.Syncer[M], bool) {
	if len(pending) == 0 {
		return hypervisor.Syncer[M]{}, false
	}
	return slices.MinFunc(pending, func(a, b hypervisor.Syncer[M]) int {
		return cmp.Compare(max(delay(a), 0), max(delay(b), 0))
	}), true
}

// next returns the action for a VM as observed. It covers the whole life of a machine.
func next(vm hypervisor.VM, at lifecycle) action {
	switch {
	case at.deleting:
		return nextWhileDeleting(vm, at)
	case vm.State == hypervisor.Busy:
		return wait
	case vm.State == hypervisor.Absent && at.provisioned:
		return reportMissing // a machine is one VM: the owner of the machine replaces it
	case vm.State == hypervisor.Running:
		return nextWhileRunning(vm, at)
	case at.machineDeleting:
		return idle // a machine that is about to be deleted is not started any more
	case vm.State == hypervisor.Absent:
		return create
	case at.syncDue && !at.provisioned:
		return syncVM // the first boot reads the VM's surroundings
	default:
		return start
	}
}

// nextWhileRunning returns the action for a machine whose VM runs.
func nextWhileRunning(vm hypervisor.VM, at lifecycle) action {
	switch {
	case len(vm.Addresses) == 0:
		return wait
	case at.syncDue:
		return syncVM // runs beside publish, which waits for nothing
	default:
		return publish
	}
}

// nextWhileDeleting returns the action for a machine that is being deleted.
func nextWhileDeleting(vm hypervisor.VM, at lifecycle) action {
	switch {
	case vm.State == hypervisor.Absent:
		return release
	case vm.State == hypervisor.Busy:
		return wait
	case vm.State == hypervisor.Running && at.softShutdown:
		return shutdown
	default:
		return destroy
	}
}
