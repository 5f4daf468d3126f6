package modules

import (
	"net/netip"
)

// DNSFacts describe name resolution in a workload cluster.
type DNSFacts struct {
	// Mode is None, Internal, Hybrid or External.
	Mode string `json:"mode"`
	// BaseDomain is the domain of the platform's names. It is not set if Mode
	// is None.
	BaseDomain string `json:"baseDomain"`
	// Address is the address of the Nova DNS service: the last usable address
	// of the service range.
	Address string `json:"address"`
	// ForwardZones are domains that other servers resolve.
	ForwardZones []ForwardZone `json:"forwardZones"`
	// Servers are the upstream servers of CoreDNS. If not set, it uses the name
	// servers of its node.
	Servers []string `json:"servers"`
}

// ForwardZone is a domain and the servers that resolve it.
type ForwardZone struct {
	Name    string   `json:"name"`
	Servers []string `json:"servers"`
}

// Modes of DNS.
const (
	// DNSNone: the platform has no base domain.
	DNSNone = "None"
	// DNSInternal: Nova DNS serves it inside the workload cluster.
	DNSInternal = "Internal"
	// DNSHybrid: as DNSInternal, and on the infra nodes for clients outside.
	DNSHybrid = "Hybrid"
	// DNSExternal: other servers serve it, and there is no Nova DNS.
	DNSExternal = "External"
)

// kubeadmServices is the default service range.
const kubeadmServices = "10.96.0.0/12"

// DNSOf returns the DNS settings for the platform settings and the service
// ranges.
func DNSOf(platform map[string]any, services []string) DNSFacts {
	out := DNSFacts{Mode: DNSNone, BaseDomain: textSetting(platform, "dns", "baseDomain"), ForwardZones: []ForwardZone{}}
	dns, _ := platform["dns"].(map[string]any)
	out.Servers = texts(dns["upstreamServers"])
	zones, _ := dns["forwardZones"].([]any)
	external := false
	for _, z := range zones {
		zone, _ := z.(map[string]any)
		name := textSetting(zone, "name")
		out.ForwardZones = append(out.ForwardZones, ForwardZone{Name: name, Servers: texts(zone["servers"])})
		external = external || name == out.BaseDomain
	}
	switch {
	case out.BaseDomain == "":
	case external:
		out.Mode = DNSExternal
	case textSetting(dns, "mode") == DNSInternal:
		out.Mode = DNSInternal
	default:
		out.Mode = DNSHybrid
	}
	if len(services) == 0 {
		services = []string{kubeadmServices}
	}
	out.Address = lastUsable(services[0])
	return out
}

func texts(list any) []string {
	out := []string{}
	items, _ := list.([]any)
	for _, item := range items {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// lastUsable is the last address of a range that a service can have: the last
// one, or the one before it if the last is a broadcast address. Empty for an
// invalid range.
func lastUsable(block string) string {
	prefix, err := netip.ParsePrefix(block)
	if err != nil {
		return ""
	}
	bytes := prefix.Masked().Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	if last.Is4() {
		last = last.Prev()
	}
	if !prefix.Contains(last) {
		return ""
	}
	return last.String()
}
