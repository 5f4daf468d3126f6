package ovirtsim

import "slices"

// States of a VM.
const (
	vmDown           = "down"
	vmUp             = "up"
	vmPoweringUp     = "powering_up"
	vmPoweringDown   = "powering_down"
	vmWaitForLaunch  = "wait_for_launch"
	vmReboot         = "reboot_in_progress"
	vmImageLocked    = "image_locked"
	vmPaused         = "paused"
	vmSuspended      = "suspended"
	vmSavingState    = "saving_state"
	vmRestoringState = "restoring_state"
	vmMigrating      = "migrating"
	vmUnknown        = "unknown"
	vmNotResponding  = "not_responding"
	vmUnassigned     = "unassigned"
	actRun           = "run"
	actStop          = "stop"
	actShutdown      = "shutdown"
	actReboot        = "reboot"
	actSuspend       = "hibernate"
	actMigrate       = "migrate"
	actRemove        = "remove"
	actMakeTemplate  = "create a template of"
	actAddNIC        = "add"
	actUpdateNIC     = "edit"
	actRemoveNIC     = "remove the interface of"
	actExtendDisk    = "extend"
	actSnapshot      = "create a snapshot of"
	actCancelMigrate = "cancel migration of"
)

// refusals is what the engine refuses in each state of a VM.
var refusals = map[string][]string{
	vmWaitForLaunch:  {actSuspend, actRun, actMakeTemplate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actMigrate, actCancelMigrate, actExtendDisk, actReboot},
	vmUp:             {actRun, actMakeTemplate, actRemove, actCancelMigrate},
	vmPoweringDown:   {actSuspend, actRun, actMakeTemplate, actRemove, actMigrate, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk, actReboot},
	vmPoweringUp:     {actSuspend, actRun, actMakeTemplate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk},
	vmReboot:         {actSuspend, actRun, actMakeTemplate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk, actReboot},
	vmMigrating:      {actRun, actMakeTemplate, actRemove, actSuspend, actMigrate, actAddNIC, actUpdateNIC, actRemoveNIC, actSnapshot, actExtendDisk, actReboot},
	vmSuspended:      {actSuspend, actMakeTemplate, actMigrate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actReboot, actSnapshot},
	vmPaused:         {actRemove, actSuspend, actMakeTemplate, actExtendDisk, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actReboot},
	vmDown:           {actStop, actShutdown, actSuspend, actMigrate, actCancelMigrate, actReboot},
	vmSavingState:    saving,
	vmRestoringState: saving,
	vmImageLocked:    append(slices.Clone(saving), actSnapshot),
	vmUnassigned:     append(slices.Clone(saving), actSnapshot),
	vmUnknown:        append(slices.Clone(saving), actSnapshot),
	vmNotResponding:  {actRun, actSuspend, actMigrate, actRemove, actMakeTemplate, actSnapshot, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk, actReboot},
}

var saving = []string{
	actRun, actStop, actShutdown, actSuspend, actMigrate, actRemove, actMakeTemplate, actAddNIC, actUpdateNIC, actRemoveNIC,
	actCancelMigrate, actExtendDisk, actReboot,
}

// statusWords are the states in messages.
var statusWords = map[string]string{
	vmDown: "Down", vmUp: "Up", vmPoweringUp: "Powering Up", vmPoweringDown: "Powering Down", vmWaitForLaunch: "Wait for Launch",
	vmReboot: "Reboot in Progress", vmImageLocked: "Image Locked", vmPaused: "Paused", vmSuspended: "Suspended",
	vmSavingState: "Saving State", vmRestoringState: "Restoring State", vmMigrating: "Migrating", vmUnknown: "Unknown",
	vmNotResponding: "Not Responding", vmUnassigned: "Unassigned",
}

// running says whether a VM in a state is on a host.
func running(status string) bool {
	return status != vmDown && status != vmImageLocked && status != vmSuspended
}

// permit refuses an action in a state as the engine words it.
func permit(v *vm, action string) error {
	if !slices.Contains(refusals[v.status], action) {
		return nil
	}
	switch {
	case v.status == vmImageLocked && (action == actStop || action == actShutdown || action == actReboot || action == actSuspend):
		return conflict("Cannot %s VM. VM is not running.", action)
	case v.status == vmImageLocked:
		return conflict("Cannot %s VM: VM is locked. Please try again in a few minutes.", action)
	case action == actMakeTemplate:
		return conflict("Cannot add Template. VM is locked or still running, try again once VM is in the Down state.")
	case (action == actRun || action == actRemove) && running(v.status):
		return conflict("Cannot %s VM. VM is running.", action)
	case v.status == vmDown:
		return conflict("Cannot %s VM. VM is not running.", action)
	}
	return conflict("Cannot %s VM because the VM is in %s status.", action, statusWords[v.status])
}
