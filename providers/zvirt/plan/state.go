package plan

import (
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// State says what a VM is like. One that goes down may never get there, since
// its guest hangs: if it is to be deleted, it runs until it is down, so that its
// power can be taken away.
func State(v ovirt.View, deleting bool) (hypervisor.State, string, error) {
	switch {
	case v.Busy != "":
		return hypervisor.Busy, v.Busy, nil
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
		return hypervisor.Running, "", nil
	}
}
