package kit

import (
	"net/netip"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// ParseNodeAddress parses an address that a guest reports. ok is false for
// addresses that other hosts cannot use.
func ParseNodeAddress(text string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsLinkLocalUnicast() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// NodeAddresses returns the addresses and names of a node: the addresses of its network
// interfaces in their order, without the control plane endpoint. The list is empty until the
// guest reports an address.
func NodeAddresses(name string, nics []hypervisor.NIC, endpoint string) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	for i := range nics {
		for _, a := range nics[i].Addresses {
			address := clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a.String()}
			if !slices.Contains(out, address) {
				out = append(out, address)
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: name}, clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: name})
	return WithoutEndpoint(out, endpoint)
}

// StaticAddresses returns the static addresses of a machine's interface with an index: those
// from pools, and those in its spec.
func StaticAddresses(pooled []hypervisor.Address, spec []string, index int) ([]hypervisor.Address, error) {
	all := slices.Clone(pooled)
	for _, text := range spec {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, InvalidSpec("network.interfaces[%d].addresses: %w", index, err)
		}
		all = append(all, hypervisor.Address{Prefix: prefix})
	}
	return all, nil
}

// WithoutEndpoint removes the control plane endpoint, which moves between
// machines, unless it is the only address: the endpoint of a cluster may be the
// address of its only control plane machine.
func WithoutEndpoint(all []clusterv1.MachineAddress, endpoint string) []clusterv1.MachineAddress {
	if a, err := netip.ParseAddr(endpoint); err == nil {
		endpoint = a.Unmap().String()
	}
	floats := func(a clusterv1.MachineAddress) bool { return a.Address == endpoint }
	isIP := func(a clusterv1.MachineAddress) bool { return a.Type == clusterv1.MachineInternalIP && !floats(a) }
	if endpoint == "" || !slices.ContainsFunc(all, isIP) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), floats)
}
