package inventory

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// StateOf returns the state of a machine's VM, and the VM.
func (i *Inventory) StateOf(id uuid.UUID, key hypervisor.Key) (hypervisor.State, types.ManagedObjectReference) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.evaluate(id, i.machineOf(id, key))
	return s.VM.State, cmp.Or(s.rejected, i.objects.ByID[id])
}

// Info returns the known properties of a machine's VM.
func (i *Inventory) Info(id uuid.UUID) cache.VM {
	i.mu.Lock()
	defer i.mu.Unlock()
	if info := i.objects.VMs[i.objects.ByID[id]]; info != nil {
		return *info
	}
	return cache.VM{}
}

// Failures returns the number of failed creations of a machine's VM.
func (i *Inventory) Failures(id uuid.UUID) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		return m.failures
	}
	return 0
}

// Keys returns all machines that were observed.
func (i *Inventory) Keys() []hypervisor.Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := make([]hypervisor.Key, 0, len(i.machines))
	for _, m := range i.machines {
		keys = append(keys, m.key)
	}
	return keys
}

// ClonesOf reports whether there is a clone of template that may belong to any
// machine, and that is under way or whose VM is not in the inventory yet.
func (i *Inventory) ClonesOf(template ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for task := range i.inherited {
		if t := i.objects.Tasks[task]; t != nil && t.Entity == template {
			return true
		}
	}
	return false
}

// AnyClones reports whether clonesOf can be true for any template.
func (i *Inventory) AnyClones() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.inherited) > 0
}

// IsRejected reports whether vm was created for the machine with another
// instance UUID.
func (i *Inventory) IsRejected(id uuid.UUID, vm ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	return m != nil && vm != (ref{}) && (m.rejected == vm || m.action.rejected(i.objects, id) == vm)
}

// VisibleLogin returns the login for which RecordVisible was called last; 0 if
// for none.
func (i *Inventory) VisibleLogin(id uuid.UUID) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		return m.visibleLogin
	}
	return 0
}

// IsConfirmedDeleted reports whether vCenter has confirmed that a machine's VM
// is deleted.
func (i *Inventory) IsConfirmedDeleted(id uuid.UUID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	return m != nil && m.deleted
}

// ShutdownRequested reports whether the guest was requested to shut down
// shortly before.
func (i *Inventory) ShutdownRequested(id uuid.UUID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	return m != nil && time.Since(m.shutdownAt) < shutdownRetryInterval
}

// ActiveActions counts the actions that have not ended.
func (i *Inventory) ActiveActions() map[Verb]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	counts := map[Verb]int{}
	for id, m := range i.machines {
		if m.action != nil && m.action.busy(i.objects, id) {
			counts[m.action.verb]++
		}
	}
	return counts
}

// OwnedVMs returns the VMs that were created for machines of a cluster in a
// namespace, by the name of the machine. The UUID proves that a VM was created
// for that machine. VMs of earlier versions have the machine's name only as
// their own name.
func (i *Inventory) OwnedVMs(clusterID, namespace string) []hypervisor.OwnedVM {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []hypervisor.OwnedVM
	for vm, name := range i.objects.Names {
		if info := i.objects.VMs[vm]; info != nil && info.Machine != "" {
			name = info.Machine
		}
		id, err := kit.MachineUUID(clusterID, hypervisor.Key{Namespace: namespace, Name: name})
		if err == nil && i.objects.IDs[vm] == id {
			out = append(out, hypervisor.OwnedVM{Machine: name, ID: vm.Value})
		}
	}
	slices.SortFunc(out, func(a, b hypervisor.OwnedVM) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// CheckAddressesFree returns an error if the guest of another VM reports one of
// the addresses, each with the prefix length of its network. VMs that were not
// created by this provider are not in the inventory.
func (i *Inventory) CheckAddressesFree(id uuid.UUID, static []string) error {
	wanted := map[netip.Addr]bool{}
	for _, text := range static {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			wanted[prefix.Addr().Unmap()] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for vm, info := range i.objects.VMs {
		if i.objects.IDs[vm] == id {
			continue
		}
		for _, a := range spec.ReportedAddresses(info.GuestNICs) {
			if wanted[a] {
				return hypervisor.Failure(infrav1.AddressInUseReason, "the VM %q (%s) has the address %s already: delete that VM, or give this machine another address",
					i.objects.Names[vm], vm.Value, a)
			}
		}
	}
	return nil
}

// UUIDTaken returns the reason why the last clone of a machine was deleted, if
// that was less than delay ago. The next clone would most likely end in the
// same way.
func (i *Inventory) UUIDTaken(id uuid.UUID, delay time.Duration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	if m == nil || m.uuidTaken == nil || time.Since(m.uuidTakenAt) > delay {
		return nil
	}
	return m.uuidTaken
}
