package spec

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Addresses returns a VM's addresses: those that its own network interfaces
// report, in order, and its names. There are none until an interface has
// reported an address. Every address is internal; an address that the internet
// routes is also external.
//
// Interfaces that only the guest knows, such as the bridges of a container
// network, do not count, and neither do addresses that float between machines.
// The address families keep the order in which the guest has them.
func Addresses(name, hostName string, guestNICs []types.GuestNicInfo) []clusterv1.MachineAddress {
	var inside, outside []clusterv1.MachineAddress
	seen := map[netip.Addr]bool{}
	for _, guestNIC := range sortedNICs(guestNICs) {
		for _, a := range ownAddresses(guestNIC) {
			if seen[a] {
				continue
			}
			seen[a] = true
			inside = append(inside, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a.String()})
			if isPublic(a) {
				outside = append(outside, clusterv1.MachineAddress{Type: clusterv1.MachineExternalIP, Address: a.String()})
			}
		}
	}
	if len(inside) == 0 {
		return nil
	}
	out := slices.Concat(inside, outside, []clusterv1.MachineAddress{
		{Type: clusterv1.MachineHostName, Address: name},
		{Type: clusterv1.MachineInternalDNS, Address: name},
	})
	if strings.HasPrefix(hostName, name+".") {
		out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: hostName})
	}
	return out
}

// ReportedNICs returns the VM's own network interfaces with the networks and
// addresses that the guest reports for them.
func ReportedNICs(guestNICs []types.GuestNicInfo) (out []hypervisor.NIC) {
	for _, guestNIC := range sortedNICs(guestNICs) {
		out = append(out, hypervisor.NIC{Network: guestNIC.Network, MAC: guestNIC.MacAddress, Addresses: ownAddresses(guestNIC)})
	}
	return out
}

// sortedNICs returns the VM's own network interfaces in the order of the VM's
// devices.
func sortedNICs(guestNICs []types.GuestNicInfo) []types.GuestNicInfo {
	own := slices.DeleteFunc(slices.Clone(guestNICs), func(c types.GuestNicInfo) bool { return c.DeviceConfigId < 0 })
	slices.SortStableFunc(own, func(a, b types.GuestNicInfo) int { return int(a.DeviceConfigId - b.DeviceConfigId) })
	return own
}

// carrierGradeNAT is the address range for carrier-grade NAT (RFC 6598), which
// the internet does not route.
var carrierGradeNAT = netip.MustParsePrefix("100.64.0.0/10")

func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !carrierGradeNAT.Contains(a)
}

// ownAddresses returns the addresses of a network interface except for
// link-local ones. An address that is a whole network of its own belongs to
// the control plane endpoint, which moves between machines, unless the
// interface has no other address of that family: DHCPv6 assigns such addresses
// too.
func ownAddresses(guestNIC types.GuestNicInfo) []netip.Addr {
	type reported struct {
		addr   netip.Addr
		single bool
	}
	var all []reported
	has := map[bool]bool{} // the key is true for IPv4
	add := func(text string, bits int32) {
		a, ok := kit.ParseNodeAddress(text)
		if !ok {
			return
		}
		r := reported{addr: a, single: int(bits) == a.BitLen()}
		all = append(all, r)
		has[a.Is4()] = has[a.Is4()] || !r.single
	}
	if guestNIC.IpConfig != nil && len(guestNIC.IpConfig.IpAddress) > 0 {
		for _, a := range guestNIC.IpConfig.IpAddress {
			add(a.IpAddress, a.PrefixLength)
		}
	} else {
		for _, a := range guestNIC.IpAddress {
			add(a, 0)
		}
	}
	var own []netip.Addr
	for _, r := range all {
		if !r.single || !has[r.addr.Is4()] {
			own = append(own, r.addr)
		}
	}
	return own
}

// ReportedAddresses returns the addresses of a VM's own network interfaces.
func ReportedAddresses(guestNICs []types.GuestNicInfo) []netip.Addr {
	var out []netip.Addr
	for _, guestNIC := range sortedNICs(guestNICs) {
		texts := slices.Clone(guestNIC.IpAddress)
		if guestNIC.IpConfig != nil {
			for _, a := range guestNIC.IpConfig.IpAddress {
				texts = append(texts, a.IpAddress)
			}
		}
		for _, text := range texts {
			if a, err := netip.ParseAddr(text); err == nil {
				out = append(out, a.Unmap())
			}
		}
	}
	return out
}
