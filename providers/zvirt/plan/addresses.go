package plan

import (
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
)

// Addresses returns a VM's addresses: what its guest reports of the VM's own
// interfaces, in order, and its name. There are none until one is reported.
//
// Interfaces that only the guest knows, such as the bridges of a container
// network, do not count. Neither does the address of the tenant's API server,
// which floats between machines.
func Addresses(name string, vm *ovirt.VM, endpoint string) []clusterv1.MachineAddress {
	if vm.NICs == nil || vm.ReportedDevices == nil {
		return nil
	}
	floating, _ := netip.ParseAddr(endpoint)
	nics := slices.Clone(vm.NICs.NICs)
	slices.SortStableFunc(nics, func(a, b ovirt.NIC) int { return strings.Compare(a.Name, b.Name) })
	var out []clusterv1.MachineAddress
	seen := map[netip.Addr]bool{floating: true}
	for _, nic := range nics {
		for _, a := range reported(vm.ReportedDevices.Devices, nic) {
			if !seen[a] {
				seen[a] = true
				out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a.String()})
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return append(out,
		clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: name},
		clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: name},
	)
}

// reported returns the addresses that a guest reports of an interface, without
// those that are link-local.
func reported(devices []ovirt.ReportedDevice, nic ovirt.NIC) []netip.Addr {
	var out []netip.Addr
	for _, device := range devices {
		if nic.MAC == nil || device.MAC == nil || !strings.EqualFold(nic.MAC.Address, device.MAC.Address) {
			continue
		}
		for _, ip := range device.IPs {
			a, err := netip.ParseAddr(ip.Address)
			if err != nil || a.IsLinkLocalUnicast() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() {
				continue
			}
			out = append(out, a.Unmap())
		}
	}
	return out
}
