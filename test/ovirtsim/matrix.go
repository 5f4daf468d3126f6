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
	vmImageIllegal   = "image_illegal"
	actRun           = "run"
	actRunOnce       = "run once"
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

// refusals are the operations that the engine rejects in each state of a VM.
var refusals = map[string][]string{
	vmWaitForLaunch:  {actSuspend, actRun, actRunOnce, actMakeTemplate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actMigrate, actCancelMigrate, actExtendDisk, actReboot},
	vmUp:             {actRun, actRunOnce, actMakeTemplate, actRemove, actCancelMigrate},
	vmPoweringDown:   {actSuspend, actRun, actRunOnce, actMakeTemplate, actRemove, actMigrate, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk, actReboot},
	vmPoweringUp:     {actSuspend, actRun, actRunOnce, actMakeTemplate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk},
	vmReboot:         {actSuspend, actRun, actRunOnce, actMakeTemplate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk, actReboot},
	vmMigrating:      {actRun, actRunOnce, actMakeTemplate, actRemove, actSuspend, actMigrate, actAddNIC, actUpdateNIC, actRemoveNIC, actSnapshot, actExtendDisk, actReboot},
	vmSuspended:      {actRunOnce, actSuspend, actMakeTemplate, actMigrate, actRemove, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actReboot, actSnapshot},
	vmPaused:         {actRunOnce, actRemove, actSuspend, actMakeTemplate, actExtendDisk, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actReboot},
	vmDown:           {actStop, actShutdown, actSuspend, actMigrate, actCancelMigrate, actReboot},
	vmSavingState:    saving,
	vmRestoringState: saving,
	vmImageLocked:    append(slices.Clone(saving), actSnapshot),
	vmImageIllegal:   append(without(slices.Clone(saving), actRemove), actSnapshot),
	vmUnassigned:     append(slices.Clone(saving), actSnapshot),
	vmUnknown:        append(slices.Clone(saving), actSnapshot),
	vmNotResponding:  {actRun, actRunOnce, actSuspend, actMigrate, actRemove, actMakeTemplate, actSnapshot, actAddNIC, actUpdateNIC, actRemoveNIC, actCancelMigrate, actExtendDisk, actReboot},
}

var saving = []string{
	actRun, actRunOnce, actStop, actShutdown, actSuspend, actMigrate, actRemove, actMakeTemplate, actAddNIC, actUpdateNIC, actRemoveNIC,
	actCancelMigrate, actExtendDisk, actReboot,
}

// statusWords are the states in messages.
var statusWords = map[string]string{
	vmDown: "Down", vmUp: "Up", vmPoweringUp: "Powering Up", vmPoweringDown: "Powering Down", vmWaitForLaunch: "Wait for Launch",
	vmReboot: "Reboot in Progress", vmImageLocked: "Image Locked", vmPaused: "Paused", vmSuspended: "Suspended",
	vmSavingState: "Saving State", vmRestoringState: "Restoring State", vmMigrating: "Migrating", vmUnknown: "Unknown",
	vmNotResponding: "Not Responding", vmUnassigned: "Unassigned", vmImageIllegal: "Image Illegal",
}

// running reports whether a VM in a state is on a host.
func running(status string) bool {
	return status != vmDown && status != vmImageLocked && status != vmImageIllegal && status != vmSuspended
}

// permit refuses an action in a state as the engine words it.
func permit(v *vm, action string) error {
	if !slices.Contains(refusals[v.status], action) {
		return nil
	}
	if action == actRunOnce {
		action = actRun
	}
	switch {
	case v.status == vmImageIllegal:
		return conflict("Cannot %s VM. VM's Image might be corrupted.", action)
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

// templateRefusals and hostRefusals are the same for templates and hosts.
var (
	templateRefusals = map[string][]string{templateLocked: {actRemove}}
	hostRefusals     = map[string][]string{
		hostUp:                      {actActivate},
		hostDown:                    {actActivate},
		hostNonResponsive:           {actActivate},
		hostMaintenance:             {actDeactivate},
		"preparing_for_maintenance": {actDeactivate},
		"reboot":                    {actActivate, actDeactivate},
		"unassigned":                {actActivate, actDeactivate},
		"initializing":              {actActivate, actDeactivate},
		"installing":                {actActivate, actDeactivate},
		"installing_os":             {actActivate, actDeactivate},
		"pending_approval":          {actActivate, actDeactivate},
		"connecting":                {actActivate, actDeactivate},
		"kdumping":                  {actActivate, actDeactivate},
	}
)

const (
	actActivate    = "activate"
	actDeactivate  = "deactivate"
	templateLocked = "locked"
)

// permitHost refuses an action on a host in a state.
func permitHost(h *host, action string) error {
	switch {
	case !slices.Contains(hostRefusals[h.status], action):
		return nil
	case h.status == hostUp:
		return conflict("Cannot activate Host. Host in Up status.")
	case h.status == hostMaintenance:
		return conflict("Cannot switch Host to Maintenance mode. Host is already in Maintenance mode.")
	case action == actDeactivate:
		return conflict("Cannot switch Host to Maintenance mode. Host is in %s status.", h.status)
	}
	return conflict("Cannot activate Host. Host is in %s status.", h.status)
}

// SetVMStatus puts a VM into a state from outside, whatever led there. The VM
// is named by ID or name.
func (s *Server) SetVMStatus(id, status string) error {
	if statusWords[status] == "" {
		return invalid("no status %q of a VM", status)
	}
	return s.changeVM(id, func(v *vm) {
		v.run++
		v.status = status
		switch {
		case !running(status):
			v.host = ""
		case v.host == "":
			if h, err := s.schedule(v, &v.config); err == nil {
				v.host = h.id
			}
		}
	})
}
