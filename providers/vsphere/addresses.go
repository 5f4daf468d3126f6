package vsphere

import (
	"net/netip"

	"github.com/vmware/govmomi/vim25/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// addresses returns a VM's addresses: what its own network cards report, in
// order, and its name. There are none until a card has reported one.
//
// Cards that only the guest knows, such as the bridges of a container network,
// do not count, and neither do addresses that float between machines.
func addresses(name string, cards []types.GuestNicInfo) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	seen := map[netip.Addr]bool{}
	for _, card := range cards {
		if card.DeviceConfigId < 0 {
			continue
		}
		for _, a := range ownAddresses(card) {
			if seen[a] {
				continue
			}
			seen[a] = true
			out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a.String()})
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

// ownAddresses returns a card's addresses without those that are link-local.
// An address that is a whole network of its own belongs to the endpoint of a
// control plane, which moves, unless the card has no other.
func ownAddresses(card types.GuestNicInfo) []netip.Addr {
	var own, single []netip.Addr
	add := func(text string, bits int32) {
		a, err := netip.ParseAddr(text)
		if err != nil || a.IsLinkLocalUnicast() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() {
			return
		}
		if int(bits) == a.BitLen() {
			single = append(single, a)
		} else {
			own = append(own, a)
		}
	}
	if card.IpConfig != nil && len(card.IpConfig.IpAddress) > 0 {
		for _, a := range card.IpConfig.IpAddress {
			add(a.IpAddress, a.PrefixLength)
		}
	} else {
		for _, a := range card.IpAddress {
			add(a, 0)
		}
	}
	if len(own) == 0 {
		return single
	}
	return own
}
