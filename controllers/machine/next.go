package machine

import "github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"

// action is the one thing a reconcile does about the VM.
type action string

const (
	create        action = "Create"
	start         action = "Start"
	settle        action = "Settle"
	wait          action = "Wait"
	publish       action = "Publish"
	reportMissing action = "ReportMissing"
	rest          action = "Rest"
	shutdown      action = "Shutdown"
	destroy       action = "Destroy"
	release       action = "Release"
)

// life is where a machine stands, apart from its VM.
type life struct {
	// deleting means the machine is to go.
	deleting bool
	// soft means that, when it goes, the guest may still power itself off.
	soft bool
	// leaving means that Cluster API is about to delete it: its node is being
	// drained, or a hook holds the deletion up.
	leaving bool
	// provisioned means its VM was up before.
	provisioned bool
	// joined means its node is part of the tenant.
	joined bool
}

// next is the whole life of a machine: what to do about a VM as observed.
func next(vm hypervisor.VM, at life) action {
	switch {
	case at.deleting:
		return last(vm, at)
	case vm.State == hypervisor.Busy:
		return wait
	case vm.State == hypervisor.Absent && at.provisioned:
		return reportMissing // a machine is one VM: its owner replaces the machine
	case vm.State == hypervisor.Running:
		return live(vm, at)
	case at.leaving:
		return rest // what is about to go is not brought up any more
	case vm.State == hypervisor.Absent:
		return create
	case vm.Unsettled != "" && !at.provisioned:
		return settle // its first boot reads what is around it
	default:
		return start
	}
}

// live is the part of a machine's life in which its VM runs.
func live(vm hypervisor.VM, at life) action {
	switch {
	case len(vm.Addresses) == 0:
		return wait
	case vm.Unsettled != "", at.joined && vm.UserData:
		return settle // beside publishing, which waits for nothing
	default:
		return publish
	}
}

// last is the end of a machine's life.
func last(vm hypervisor.VM, at life) action {
	switch {
	case vm.State == hypervisor.Absent:
		return release
	case vm.State == hypervisor.Busy:
		return wait
	case vm.State == hypervisor.Running && at.soft:
		return shutdown
	default:
		return destroy
	}
}
