package modules

import (
	"net/netip"
)

// DNSFacts are how names are resolved on a tenant.
type DNSFacts struct {
	// Mode is None, Internal, Hybrid or External.
	Mode string `json:"mode"`
	// BaseDomain is the domain of the platform's names. Empty with None.
	BaseDomain string `json:"baseDomain"`
	// Address is the address of Nova DNS' service: the last usable one of the
	// service range.
	Address string `json:"address"`
	// ForwardZones are domains that other servers know.
	ForwardZones []ForwardZone `json:"forwardZones"`
	// Servers are the upstream servers of CoreDNS. If empty, it uses the name
	// servers of its node.
	Servers []string `json:"servers"`
}

// ForwardZone is a domain and the servers that know it.
type ForwardZone struct {
	Name    string   `json:"name"`
	Servers []string `json:"servers"`
}

// Modes of DNS.
const (
	// DNSNone: the platform has no base domain.
	DNSNone = "None"
	// DNSInternal: Nova DNS serves it inside the tenant.
	DNSInternal = "Internal"
	// DNSHybrid: and to the outside, on the infra nodes.
	DNSHybrid = "Hybrid"
	// DNSExternal: other servers serve it, and there is no Nova DNS.
	DNSExternal = "External"
)

// kubeadmServices is the service range of a Cluster that names none.
const kubeadmServices = "10.96.0.0/12"

// DNSOf says how names are resolved, by the platform settings and the ranges
// of services.
func DNSOf(platform map[string]any, services []string) DNSFacts {
	out := DNSFacts{Mode: DNSNone, BaseDomain: text(platform, "dns", "baseDomain"), ForwardZones: []ForwardZone{}}
	dns, _ := platform["dns"].(map[string]any)
	out.Servers = texts(dns["upstreamServers"])
	zones, _ := dns["forwardZones"].([]any)
	external := false
	for _, z := range zones {
		zone, _ := z.(map[string]any)
		name := text(zone, "name")
		out.ForwardZones = append(out.ForwardZones, ForwardZone{Name: name, Servers: texts(zone["servers"])})
		external = external || name == out.BaseDomain
	}
	switch {
	case out.BaseDomain == "":
	case external:
		out.Mode = DNSExternal
	case text(dns, "mode") == DNSInternal:
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

// lastUsable is the last address of a range that a service may have: the last
// one of all, or the one before it where that is for broadcasts. Empty for what
// is no range.
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
