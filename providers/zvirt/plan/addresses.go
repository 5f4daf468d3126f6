package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// Addresses returns the addresses of a VM: the addresses of its own interfaces
// that the guest reports, in order, and its name. The list is empty until the
// guest reports an address.
//
// Interfaces that only the guest has, such as the bridges of a container
// network, are ignored. The address of the API server of the workload cluster
// is ignored too, because it moves between machines, unless it is the only one.
func Addresses(name string, vm *ovirt.VM, endpoint string) []clusterv1.MachineAddress {
	return kit.NodeAddresses(name, NICs(vm, nil), endpoint)
}

// NICs returns the network interfaces of the VM with the addresses that the
// guest reports. The profiles are the names of their vNIC profiles, in the same
// order.
func NICs(vm *ovirt.VM, profiles []string) []hypervisor.NIC {
	if vm.NICs == nil || vm.ReportedDevices == nil {
		return nil
	}
	nics := slices.Clone(vm.NICs.NICs)
	slices.SortStableFunc(nics, func(a, b ovirt.NIC) int { return strings.Compare(a.Name, b.Name) })
	var out []hypervisor.NIC
	for i, nic := range nics {
		one := hypervisor.NIC{Addresses: reported(vm.ReportedDevices.Devices, nic)}
		if nic.MAC != nil {
			one.MAC = nic.MAC.Address
		}
		if len(profiles) == len(nics) {
			one.Network = profiles[i]
		}
		out = append(out, one)
	}
	return out
}

// reported returns the addresses that a guest reports for an interface, without
// link-local addresses.
func reported(devices []ovirt.ReportedDevice, nic ovirt.NIC) []netip.Addr {
	var out []netip.Addr
	for _, device := range devices {
		if nic.MAC == nil || device.MAC == nil || !strings.EqualFold(nic.MAC.Address, device.MAC.Address) {
			continue
		}
		for _, ip := range device.IPs {
			if a, ok := kit.ParseNodeAddress(ip.Address); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

// staticAddresses returns the addresses in the boot configuration of a guest.
func staticAddresses(boot *ovirt.Initialization) []netip.Addr {
	if boot == nil || boot.NICConfigurations == nil {
		return nil
	}
	var out []netip.Addr
	for _, nic := range boot.NICConfigurations.NICs {
		for _, ip := range []*ovirt.IP{nic.IP, nic.IPv6} {
			if ip == nil {
				continue
			}
			if a, err := netip.ParseAddr(ip.Address); err == nil {
				out = append(out, a.Unmap())
			}
		}
	}
	return out
}

// joinAddresses formats addresses for a mark.
func joinAddresses(addresses []netip.Addr) string {
	texts := make([]string, 0, len(addresses))
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// CheckAddresses returns an error if another VM uses a static address of vm.
// The address is in the mark of the other VM, also while that VM is powered
// off, or its guest reports it.
func CheckAddresses(vm *ovirt.VM, all []*ovirt.VM) error {
	wanted := staticAddresses(vm.Initialization)
	if len(wanted) == 0 {
		return nil
	}
	own := OwnerOf(vm.Comment)
	for _, other := range all {
		if OwnerOf(other.Comment) == own {
			continue
		}
		for _, a := range wanted {
			if slices.Contains(knownAddresses(other), a) {
				return hypervisor.Failure(infrav1.AddressInUseReason, "the VM %q (%s) already has the address %s: delete that VM, or give this machine another address",
					other.Name, other.ID, a)
			}
		}
	}
	return nil
}

// knownAddresses returns all known addresses of a VM.
func knownAddresses(vm *ovirt.VM) []netip.Addr {
	var out []netip.Addr
	mark, _ := ReadMark(vm.Comment)
	for text := range strings.SplitSeq(mark.Addresses, ",") {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap())
		}
	}
	if vm.NICs == nil || vm.ReportedDevices == nil {
		return out
	}
	for _, nic := range vm.NICs.NICs {
		out = append(out, reported(vm.ReportedDevices.Devices, nic)...)
	}
	return out
}

// OwnedVMs returns the VMs that were created for machines of a cluster in a
// namespace. A VM that had the machine's name and was renamed is not found: its
// mark does not have the name of the machine.
func OwnedVMs(clusterID, namespace string, all []*ovirt.VM) []hypervisor.OwnedVM {
	var out []hypervisor.OwnedVM
	for _, vm := range all {
		mark, ours := ReadMark(vm.Comment)
		machine := cmp.Or(mark.Machine, vm.Name)
		id, err := kit.MachineUUID(clusterID, hypervisor.Key{Namespace: namespace, Name: machine})
		if err == nil && ours && mark.ID == id {
			out = append(out, hypervisor.OwnedVM{Machine: machine, ID: vm.ID})
		}
	}
	return out
}
