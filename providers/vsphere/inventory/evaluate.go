package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// Observation is the result that an Observe would return.
type Observation struct {
	VM hypervisor.VM
	// Failure is the failure of the last action. failedNow is set if it was not
	// observed before.
	Failure   FailedAction
	FailedNow bool
	// Unknown is set when the VM's state is not known.
	Unknown *hypervisor.Error
	// Missing is the VM that the account could see before and cannot see any
	// more. vCenter has to confirm whether it was deleted.
	Missing ref
	// rejected is the VM that the machine's clone task created and that has to
	// be deleted, because it has another instance UUID.
	rejected ref
}

// evaluate returns the state of the VM with the given UUID. The caller holds
// the lock.
func (i *Inventory) evaluate(id uuid.UUID, m *machine) Observation {
	vm, known := i.objects.ByID[id]
	info := i.objects.VMs[vm]
	var s Observation
	if known {
		m.vm, m.deleted = vm, false
	}
	if known && info != nil {
		s.VM.ID, s.VM.ProviderID, s.VM.Zone, s.VM.Host = vm.Value, info.ProviderID(), info.Zone, i.objects.HostName(info)
	}
	busy := m.action != nil && m.action.busy(i.objects, id)
	if busy && (m.action.verb != Syncing || m.deleting || !info.Running()) {
		s.VM.State, s.VM.Message = hypervisor.Busy, m.action.message
		s.VM.Message += info.PendingQuestion()
		return s
	}
	if !known && i.objects.HasUnreadable(cmp.Or(m.name, m.key.Name)) {
		// The VM may be ours. Until that is known, no other VM may be created,
		// and the machine may not be released.
		s.VM.State = hypervisor.Busy
		s.VM.Message = "Waiting until vCenter can read the settings of the VM with this machine's name: its owner is not known until then"
		return s
	}
	if !busy {
		s.Failure = m.lastFailure(i.objects, id)
	}
	if !known {
		i.evaluateMissing(id, m, &s)
		return s
	}
	i.evaluateVM(id, m, info, &s)
	return s
}

// evaluateMissing sets the observation of a machine if no VM has its UUID.
func (i *Inventory) evaluateMissing(id uuid.UUID, m *machine, s *Observation) {
	if rejected := cmp.Or(m.rejected, m.action.rejected(i.objects, id)); rejected != (ref{}) {
		i.evaluateRejected(rejected, m, s)
		return
	}
	if m.action.destroyed(i.objects) {
		m.vm, m.deleted = ref{}, true
	}
	other, listed := i.objects.IDs[m.vm]
	switch {
	case m.vm == ref{}:
		s.VM.State = hypervisor.Absent
	case listed && other != uuid.Nil && other != id:
		s.Unknown = hypervisor.Failure(infrav1.VMAmbiguousReason,
			"the instance UUID of the VM (%s) was changed, so the VM is not changed or deleted: set the UUID to %s again, or delete the VM", m.vm.Value, id)
	default:
		s.VM.State, s.VM.Message, s.Missing = hypervisor.Busy, "Checking whether the VM was deleted", m.vm
	}
}

// evaluateRejected sets the observation of a machine whose VM has another
// instance UUID. The creation fails once that VM is deleted, so that the time
// until the next attempt starts then.
func (i *Inventory) evaluateRejected(vm ref, m *machine, s *Observation) {
	_, listed := i.objects.IDs[vm]
	switch {
	case listed && !m.action.destroyed(i.objects):
		s.rejected, s.VM.State = vm, hypervisor.Absent
		s.VM.Message = RejectedMessage(vm)
		if m.deleting {
			s.VM.State = hypervisor.Stopped // it has to be deleted before the machine
		}
		if err := s.Failure.Err; err != nil && m.action != nil {
			s.Failure.Err = hypervisor.Failure(err.Reason, "deleting the VM %s, to which vCenter gave another instance UUID: %w", vm.Value, err.Err)
		}
	case m.deleting:
		s.VM.State = hypervisor.Absent
	default:
		s.VM.State = hypervisor.Absent
		s.Failure.Err = hypervisor.Failure(infrav1.HypervisorErrorReason, "vCenter gave the new VM (%s) another instance UUID than the requested one, because a VM that the account cannot see has that:"+
			" the new VM was deleted; let the account see the other VM or delete that, or replace the Machine", vm.Value)
		m.uuidTaken, m.uuidTakenAt = s.Failure.Err, time.Now()
	}
}

// RejectedMessage describes the deletion of a VM to which vCenter gave another
// instance UUID.
func RejectedMessage(vm ref) string {
	return "Deleting the VM " + vm.Value + ", to which vCenter gave another instance UUID"
}

// evaluateVM sets the observation of a machine from the VM that has its UUID.
func (i *Inventory) evaluateVM(id uuid.UUID, m *machine, info *cache.VM, s *Observation) {
	if duplicates := i.objects.DuplicateVMs(id); len(duplicates) > 1 {
		s.Unknown = hypervisor.Failure(infrav1.VMAmbiguousReason,
			"several VMs have this machine's instance UUID (%s), so none is changed: remove the copies", strings.Join(duplicates, ", "))
		return
	}
	switch {
	case info == nil:
		s.VM.State, s.VM.Message = hypervisor.Busy, "Reading the VM's settings"
		return
	case info.Connection != "" && info.Connection != types.VirtualMachineConnectionStateConnected:
		s.Unknown = hypervisor.Failure(vspherev1.VMUnreachableReason, "%s", unreachable(info.Connection, i.objects.HostName(info)))
		return
	case info.Running():
		s.VM.State = hypervisor.Running
		s.VM.Addresses = spec.Addresses(m.key.Name, info.HostName, info.GuestNICs)
		s.VM.NICs = spec.ReportedNICs(info.GuestNICs)
		s.VM.Report = hypervisor.ParseReport(info.Report)
	default:
		// A suspended VM does not run either, and powering it on resumes it.
		s.VM.State = hypervisor.Stopped
	}
	if s.VM.UserData = info.HasUserData(); s.VM.UserData {
		s.VM.ToSync = []string{SyncUserData}
	}
	if s.VM.State != hypervisor.Running {
		return // the objects around a VM do not delay its boot
	}
	unread := i.compare(id, m, &s.VM)
	if m.action != nil && m.action.verb == Syncing && m.action.busy(i.objects, id) {
		s.VM.OutOfSync = m.action.message
		if !slices.Contains(s.VM.ToSync, m.action.part) {
			s.VM.ToSync = append(s.VM.ToSync, m.action.part)
		}
	}
	if !slices.Contains(unread, s.Failure.Part) && !s.Failure.matters(&s.VM) {
		s.Failure, m.failed = FailedAction{}, FailedAction{}
	}
}

// compare sets the parts of a machine's VM that are out of sync, and returns
// the parts that were not read yet. The caller holds the lock.
func (i *Inventory) compare(id uuid.UUID, m *machine, to *hypervisor.VM) (unread []string) {
	if m.deleting {
		return nil
	}
	var all []string
	for _, p := range i.parts {
		differences, known := p.Differences(i.objects, id)
		if !known {
			unread = append(unread, p.Name())
		}
		if len(differences) > 0 {
			all, to.ToSync = append(all, differences...), append(to.ToSync, p.Name())
		}
	}
	if len(all) > 0 {
		to.OutOfSync = OutOfSyncPrefix + strings.Join(all, ", ")
	}
	return unread
}

// OutOfSyncPrefix is the prefix of the list of objects that are out of sync.
const OutOfSyncPrefix = "Out of sync: "

// unreachable explains in a message why vCenter does not know the state of a
// VM.
func unreachable(state types.VirtualMachineConnectionState, host string) string {
	on := ""
	if host != "" {
		on = " on host " + host
	}
	switch state {
	case types.VirtualMachineConnectionStateDisconnected:
		return fmt.Sprintf("vCenter is disconnected from the VM's host%s: the VM may run, or be restarted on another host (disconnected)", on)
	case types.VirtualMachineConnectionStateOrphaned:
		return fmt.Sprintf("the VM is not registered%s any more (orphaned): register it again, or remove it from the inventory", on)
	case types.VirtualMachineConnectionStateInaccessible:
		return fmt.Sprintf("the files of the VM%s cannot be read (inaccessible): look at its datastore", on)
	default:
		return fmt.Sprintf("vCenter has lost its connection to the VM%s (%s)", on, state)
	}
}
