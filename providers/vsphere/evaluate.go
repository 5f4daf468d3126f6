package vsphere

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

// observation is the result that an Observe would return.
type observation struct {
	vm hypervisor.VM
	// failure is the failure of the last action. failedNow is set if it was not
	// observed before.
	failure   failedAction
	failedNow bool
	// unknown is set when the VM's state is not known.
	unknown *hypervisor.Error
	// missing is the VM that the account could see before and cannot see any
	// more. vCenter has to confirm whether it was deleted.
	missing moref
	// rejected is the VM that the machine's clone task created and that has to
	// be deleted, because it has another instance UUID.
	rejected moref
}

// evaluate returns the state of the VM with the given UUID. The caller holds
// the lock.
func (i *inventory) evaluate(id uuid.UUID, m *machine) observation {
	vm, known := i.objects.ByID[id]
	info := i.objects.VMs[vm]
	var s observation
	if known {
		m.vm, m.deleted = vm, false
	}
	if known && info != nil {
		s.vm.ID, s.vm.ProviderID, s.vm.Zone, s.vm.Host = vm.Value, info.ProviderID(), info.Zone, i.objects.HostName(info)
	}
	busy := m.action != nil && m.action.busy(i.objects, id)
	if busy && (m.action.verb != syncing || m.deleting || !info.Running()) {
		s.vm.State, s.vm.Message = hypervisor.Busy, m.action.message
		s.vm.Message += info.PendingQuestion()
		return s
	}
	if !known && i.objects.HasUnreadable(cmp.Or(m.name, m.key.Name)) {
		// The VM may be ours. Until that is known, no other VM may be created,
		// and the machine may not be released.
		s.vm.State = hypervisor.Busy
		s.vm.Message = "Waiting until vCenter can read the settings of the VM with this machine's name: its owner is not known until then"
		return s
	}
	if !busy {
		s.failure = m.lastFailure(i.objects, id)
	}
	if !known {
		i.evaluateMissing(id, m, &s)
		return s
	}
	i.evaluateVM(vm, id, m, info, &s)
	return s
}

// evaluateMissing sets the observation of a machine if no VM has its UUID.
func (i *inventory) evaluateMissing(id uuid.UUID, m *machine, s *observation) {
	if rejected := cmp.Or(m.rejected, m.action.rejected(i.objects, id)); rejected != (moref{}) {
		i.evaluateRejected(rejected, m, s)
		return
	}
	if m.action.destroyed(i.objects) {
		m.vm, m.deleted = moref{}, true
	}
	other, listed := i.objects.IDs[m.vm]
	switch {
	case m.vm == moref{}:
		s.vm.State = hypervisor.Absent
	case listed && other != uuid.Nil && other != id:
		s.unknown = hypervisor.Failure(infrav1.VMAmbiguousReason,
			"the instance UUID of the VM (%s) was changed, so the VM is not changed or deleted: set the UUID to %s again, or delete the VM", m.vm.Value, id)
	default:
		s.vm.State, s.vm.Message, s.missing = hypervisor.Busy, "Checking whether the VM was deleted", m.vm
	}
}

// evaluateRejected sets the observation of a machine whose VM has another
// instance UUID. The creation fails once that VM is deleted, so that the time
// until the next attempt starts then.
func (i *inventory) evaluateRejected(vm moref, m *machine, s *observation) {
	_, listed := i.objects.IDs[vm]
	switch {
	case listed && !m.action.destroyed(i.objects):
		s.rejected, s.vm.State = vm, hypervisor.Absent
		s.vm.Message = rejectedMessage(vm)
		if m.deleting {
			s.vm.State = hypervisor.Stopped // it has to be deleted before the machine
		}
		if err := s.failure.err; err != nil && m.action != nil {
			s.failure.err = hypervisor.Failure(err.Reason, "deleting the VM %s, to which vCenter gave another instance UUID: %w", vm.Value, err.Err)
		}
	case m.deleting:
		s.vm.State = hypervisor.Absent
	default:
		s.vm.State = hypervisor.Absent
		s.failure.err = hypervisor.Failure(infrav1.HypervisorErrorReason, "vCenter gave the new VM (%s) another instance UUID than the requested one, because a VM that the account cannot see has that:"+
			" the new VM was deleted; let the account see the other VM or delete that, or replace the Machine", vm.Value)
		m.uuidTaken, m.uuidTakenAt = s.failure.err, time.Now()
	}
}

func rejectedMessage(vm moref) string {
	return "Deleting the VM " + vm.Value + ", to which vCenter gave another instance UUID"
}

// evaluateVM sets the observation of a machine from the VM that has its UUID.
func (i *inventory) evaluateVM(vm moref, id uuid.UUID, m *machine, info *cache.VM, s *observation) {
	if duplicates := i.objects.DuplicateVMs(id); len(duplicates) > 1 {
		s.unknown = hypervisor.Failure(infrav1.VMAmbiguousReason,
			"several VMs have this machine's instance UUID (%s), so none is changed: remove the copies", strings.Join(duplicates, ", "))
		return
	}
	switch {
	case info == nil:
		s.vm.State, s.vm.Message = hypervisor.Busy, "Reading the VM's settings"
		return
	case info.Connection != "" && info.Connection != types.VirtualMachineConnectionStateConnected:
		s.unknown = hypervisor.Failure(vspherev1.VMUnreachableReason, "%s", unreachable(info.Connection, i.objects.HostName(info)))
		return
	case info.Running():
		s.vm.State = hypervisor.Running
		s.vm.Addresses = spec.Addresses(m.key.Name, info.HostName, info.GuestNICs)
		s.vm.NICs = spec.ReportedNICs(info.GuestNICs)
		s.vm.Report = hypervisor.ParseReport(info.Report)
	default:
		// A suspended VM does not run either, and powering it on resumes it.
		s.vm.State = hypervisor.Stopped
	}
	if s.vm.UserData = info.HasUserData(); s.vm.UserData {
		s.vm.ToSync = []string{syncUserData}
	}
	if s.vm.State != hypervisor.Running {
		return // the objects around a VM do not delay its boot
	}
	unread := i.compare(id, m, &s.vm)
	if m.action != nil && m.action.verb == syncing && m.action.busy(i.objects, id) {
		s.vm.OutOfSync = m.action.message
		if !slices.Contains(s.vm.ToSync, m.action.part) {
			s.vm.ToSync = append(s.vm.ToSync, m.action.part)
		}
	}
	if !slices.Contains(unread, s.failure.part) && !s.failure.matters(&s.vm) {
		s.failure, m.failed = failedAction{}, failedAction{}
	}
}

// compare sets the parts of a machine's VM that are out of sync, and returns
// the parts that were not read yet. The caller holds the lock.
func (i *inventory) compare(id uuid.UUID, m *machine, to *hypervisor.VM) (unread []string) {
	if m.deleting {
		return nil
	}
	var all []string
	for _, p := range i.parts {
		differences, known := p.differences(i.objects, id)
		if !known {
			unread = append(unread, p.name())
		}
		if len(differences) > 0 {
			all, to.ToSync = append(all, differences...), append(to.ToSync, p.name())
		}
	}
	if len(all) > 0 {
		to.OutOfSync = outOfSyncPrefix + strings.Join(all, ", ")
	}
	return unread
}

// outOfSyncPrefix is the prefix of the list of objects that are out of sync.
const outOfSyncPrefix = "Out of sync: "

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
