package vsphere

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// ownedVMs returns the VMs that were created for machines of a cluster in a
// namespace, by the name of the machine. The UUID proves that a VM was created
// for that machine. VMs of earlier versions have the machine's name only as
// their own name.
func (i *inventory) ownedVMs(clusterID, namespace string) []hypervisor.OwnedVM {
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

// checkAddressesFree returns an error if the guest of another VM reports one of
// the addresses, each with the prefix length of its network. VMs that were not
// created by this provider are not in the inventory.
func (i *inventory) checkAddressesFree(id uuid.UUID, static []string) error {
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
