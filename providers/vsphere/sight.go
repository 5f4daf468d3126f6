package vsphere

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// sight is the result that an Observe would return.
type sight struct {
	vm      hypervisor.VM
	failure *hypervisor.Error
	// lost is set when the VM's state is not known.
	lost *hypervisor.Error
	// vanished is the VM that the account could see before and cannot see any
	// more. vCenter has to confirm whether it was deleted.
	vanished ref
	// rejected is the VM that the machine's clone task created and that has to
	// be deleted, because it has another instance UUID.
	rejected ref
}

// look returns the state of the VM with the given UUID. The caller holds the
// lock.
func (i *inventory) look(id uuid.UUID, m *machine) sight {
	vm, known := i.world.byID[id]
	info := i.world.vms[vm]
	var s sight
	if known {
		m.vm, m.buried = vm, false
	}
	if known && info != nil {
		s.vm.ID, s.vm.ProviderID, s.vm.Zone, s.vm.Host = vm.Value, info.providerID(), info.zone, i.world.hostName(info)
	}
	busy := m.act != nil && m.act.busy(i.world, id)
	if busy && (m.act.verb != settling || m.going || !info.running()) {
		s.vm.State, s.vm.Message = hypervisor.Busy, m.act.message
		s.vm.Message += info.pending()
		return s
	}
	if !known && i.world.unreadable(cmp.Or(m.wants.name, m.key.Name)) {
		// The VM may be ours. Until that is known, no other VM may be created,
		// and the machine may not be released.
		s.vm.State = hypervisor.Busy
		s.vm.Message = "Waiting until vCenter can read the settings of the VM with this machine's name: nobody can say whose it is"
		return s
	}
	if m.act != nil && !busy {
		s.failure = m.act.failure(i.world, id)
	}
	if !known {
		i.lookForMissing(id, m, &s)
		return s
	}
	i.lookAt(vm, id, m, info, &s)
	return s
}

// lookForMissing sets the sight of a machine if no VM has its UUID.
func (i *inventory) lookForMissing(id uuid.UUID, m *machine, s *sight) {
	if rejected := cmp.Or(m.rejected, m.act.rejected(i.world, id)); rejected != (ref{}) {
		i.lookAtRejected(rejected, m, s)
		return
	}
	if m.act.destroyed(i.world) {
		m.vm, m.buried = ref{}, true
	}
	other, listed := i.world.ids[m.vm]
	switch {
	case m.vm == ref{}:
		s.vm.State = hypervisor.Absent
	case listed && other != uuid.Nil && other != id:
		s.lost = failure(infrav1.VMAmbiguousReason,
			"somebody gave the VM (%s) another instance UUID than this machine's, so it is left alone: give it %s back, or delete it", m.vm.Value, id)
	default:
		s.vm.State, s.vm.Message, s.vanished = hypervisor.Busy, "Making sure that the VM is gone", m.vm
	}
}

// lookAt sets the sight of a machine from the VM that has its UUID.
func (i *inventory) lookAt(vm ref, id uuid.UUID, m *machine, info *vmInfo, s *sight) {
	if twins := i.world.twins(id); len(twins) > 1 {
		s.lost = failure(infrav1.VMAmbiguousReason,
			"several VMs carry this machine's instance UUID (%s), so none is touched: remove the copies", strings.Join(twins, ", "))
		return
	}
	switch {
	case info == nil:
		s.vm.State, s.vm.Message = hypervisor.Busy, "Reading the VM's settings"
		return
	case info.connection != "" && info.connection != types.VirtualMachineConnectionStateConnected:
		s.lost = failure(infrav1.VMUnreachableReason, "%s", unreachable(info.connection, i.world.hostName(info)))
		return
	case info.running():
		s.vm.State = hypervisor.Running
		s.vm.Addresses = addresses(m.key.Name, info.hostName, info.guestNICs)
		s.vm.NICs = reportedNICs(info.guestNICs)
		s.vm.Report = hypervisor.ParseReport(info.report)
	default:
		// A suspended VM does not run either, and powering it on resumes it.
		s.vm.State = hypervisor.Stopped
	}
	s.vm.UserData = info.holdsUserData()
	if s.vm.State != hypervisor.Running {
		return // the objects around a VM do not delay its boot
	}
	if s.vm.OutOfSync = i.unsettled(vm, m, info); m.act != nil && m.act.verb == settling && m.act.busy(i.world, id) {
		s.vm.OutOfSync = m.act.message
	}
}

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

// twins returns the names of the VMs with a UUID.
func (w *world) twins(id uuid.UUID) []string {
	names := []string{w.byID[id].Value}
	for _, vm := range w.copies[id] {
		names = append(names, vm.Value)
	}
	slices.Sort(names)
	return names
}

// facts returns the known properties of a machine's VM.
func (i *inventory) facts(id uuid.UUID) vmInfo {
	i.mu.Lock()
	defer i.mu.Unlock()
	if info := i.world.vms[i.world.byID[id]]; info != nil {
		return *info
	}
	return vmInfo{}
}

// bury records that vCenter has confirmed that vm is deleted.
func (i *inventory) bury(id uuid.UUID, vm ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil && m.vm == vm {
		m.vm, m.buried = ref{}, true
	}
}
