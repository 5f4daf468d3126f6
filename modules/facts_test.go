package modules

import "testing"

// A server is split as its clients split it, with and without a port.
func TestSetServer(t *testing.T) {
	for _, tc := range []struct{ server, host, port string }{
		{"vcenter.example", "vcenter.example", "443"},
		{"vcenter.example:8443", "vcenter.example", "8443"},
		{"192.0.2.1:443", "192.0.2.1", "443"},
		{"2001:db8::1", "2001:db8::1", "443"},
		{"[2001:db8::1]", "2001:db8::1", "443"},
		{"[2001:db8::1]:8443", "2001:db8::1", "8443"},
		{"", "", "443"},
	} {
		h := HypervisorFacts{}
		if h.SetServer(tc.server); h.Server != tc.server || h.Host != tc.host || h.Port != tc.port {
			t.Errorf("%q is split into %q and %q", tc.server, h.Host, h.Port)
		}
	}
}
