package kit

import (
	"net/netip"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
