package plan

import (
	"fmt"
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// faults are messages about running VMs, by their status.
var faults = map[string]string{
	"paused":         "The engine paused the VM, as a rule because its storage has an error or no space left: see the events of the VM in the engine",
	"not_responding": "The VM is not responding: see the events of the VM and its host in the engine",
}

// State returns the state of a VM. A shutdown may not complete, because the
// guest hangs: a VM that is to be deleted is therefore reported as Running
// until it is down, so that it can be powered off.
func State(v ovirt.Snapshot, deleting bool) (hypervisor.State, string, error) {
	switch {
	case v.Busy != "":
		return hypervisor.Busy, v.Busy, nil
	case len(v.Ambiguous) > 0:
		return "", "", ambiguous(v.Ambiguous)
	case v.VM == nil:
		return hypervisor.Absent, "", nil
	}
	switch status := v.VM.Status; status {
	case "image_locked":
		return hypervisor.Busy, "The engine is copying the template's disks", nil
	case "powering_down", "saving_state", "restoring_state":
		if deleting && status == "powering_down" {
			return hypervisor.Running, "", nil
		}
		return hypervisor.Busy, "The status of the VM in the engine is " + status, nil
	case "unknown", "unassigned":
		return "", "", hypervisor.Failure(infrav1.HypervisorErrorReason, "the engine does not know the state of the VM (%s): its host may be down", status)
	case "down", "suspended":
		if !v.Detailed {
			return hypervisor.Busy, "Reading the VM's settings", nil
		}
		for _, a := range Attachments(v.VM) {
			if a.Disk != nil && IsLocked(a.Disk) {
				return hypervisor.Busy, "The engine is working on the VM's disks", nil
			}
		}
		return hypervisor.Stopped, "", nil
	default:
		return hypervisor.Running, faults[status], nil
	}
}

// ambiguous returns the error for a machine whose VM cannot be identified. If
// the driver reported the VM as Absent instead, the controller would create a
// second VM with the same identity or, when it deletes the machine, leave this
// VM behind.
func ambiguous(vms []*ovirt.VM) error {
	names := make([]string, 0, len(vms))
	same := true
	for _, vm := range vms {
		names = append(names, fmt.Sprintf("%s (%s)", vm.Name, vm.ID))
		same = same && vm.Name == vms[0].Name
	}
	if len(vms) > 1 && same {
		return hypervisor.Failure(infrav1.VMAmbiguousReason,
			"several VMs have this machine's name and its mark in their comment, so none is changed: %s. Clear the comments of all VMs but the machine's own, or delete these VMs",
			strings.Join(names, ", "))
	}
	return hypervisor.Failure(infrav1.VMAmbiguousReason,
		"no VM has this machine's name, but the comments of these VMs contain its mark, so none is changed: %s. Rename the machine's own VM back; clear the comment of a copy, or delete the copy",
		strings.Join(names, ", "))
}
