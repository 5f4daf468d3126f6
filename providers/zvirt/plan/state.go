package plan

import (
	"fmt"
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// faults are messages about VMs that run, by their status.
var faults = map[string]string{
	"paused":         "The engine paused the VM, as a rule because its storage has an error or no space left: see the events of the VM in the engine",
	"not_responding": "The VM is not responding: see the events of the VM and its host in the engine",
}

// State says what a VM is like. One that goes down may never get there, since
// its guest hangs: if it is to be deleted, it runs until it is down, so that its
// power can be taken away.
func State(v ovirt.View, deleting bool) (hypervisor.State, string, error) {
	switch {
	case v.Busy != "":
		return hypervisor.Busy, v.Busy, nil
	case len(v.Unclear) > 0:
		return "", "", unclear(v.Unclear)
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
		return hypervisor.Busy, "The engine says that the VM is " + status, nil
	case "unknown", "unassigned":
		return "", "", Failure(infrav1.HypervisorErrorReason, "the engine does not know the state of the VM (%s): its host may be down", status)
	case "down", "suspended":
		if !v.Detailed {
			return hypervisor.Busy, "Reading the VM's settings", nil
		}
		for _, a := range Attachments(v.VM) {
			if a.Disk != nil && a.Disk.Status == "locked" {
				return hypervisor.Busy, "The engine is working on the VM's disks", nil
			}
		}
		return hypervisor.Stopped, "", nil
	default:
		return hypervisor.Running, faults[status], nil
	}
}

// unclear says that it cannot be told which VM is the machine's. To take none
// for it would have another one made with the same identity or, as the machine
// goes, leave this one behind.
func unclear(vms []*ovirt.VM) error {
	names := make([]string, 0, len(vms))
	same := true
	for _, vm := range vms {
		names = append(names, fmt.Sprintf("%s (%s)", vm.Name, vm.ID))
		same = same && vm.Name == vms[0].Name
	}
	if len(vms) > 1 && same {
		return Failure(infrav1.VMAmbiguousReason,
			"several VMs have this machine's name and its mark in their comment, so none is touched: %s. Take the comment of all but the machine's own out, or delete them",
			strings.Join(names, ", "))
	}
	return Failure(infrav1.VMAmbiguousReason,
		"no VM has this machine's name, but the comment of these holds its mark, so none is touched: %s. Give the machine's own its name back; take the comment of a copy out, or delete it",
		strings.Join(names, ", "))
}
