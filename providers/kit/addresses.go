package kit

import "net/netip"

// ParseNodeAddress parses an address that a guest reports. ok is false for
// addresses that other hosts cannot use.
func ParseNodeAddress(text string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsLinkLocalUnicast() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}
