package sessions

import (
	"fmt"
	"testing"
)

func TestCanonical(t *testing.T) {
	for server, want := range map[string]string{
		"vc.example":             "vc.example",
		"VC.Example":             "vc.example",
		"vc.example.":            "vc.example",
		"vc.example:443":         "vc.example",
		"vc.example.:0443":       "vc.example",
		"vc.example:8443":        "vc.example:8443",
		"192.0.2.1":              "192.0.2.1",
		"192.0.2.1:443":          "192.0.2.1",
		"[2001:DB8::1]":          "[2001:db8::1]",
		"[2001:db8:0:0::1]:443":  "[2001:db8::1]",
		"[2001:db8::1]:8443":     "[2001:db8::1]:8443",
		"[::ffff:192.0.2.1]:443": "192.0.2.1",
	} {
		if got := Canonical(server); got != want {
			t.Errorf("Canonical(%q) = %q, want %q", server, got, want)
		}
	}
}

// The number of series is limited for any number of servers.
func TestLabelsAreBounded(t *testing.T) {
	seen := map[string]bool{}
	for i := range 10 * maxLabels {
		seen[Label(fmt.Sprintf("bounded-%d.example", i))] = true
	}
	if len(seen) > maxLabels+1 || !seen[otherServers] {
		t.Errorf("%d labels", len(seen))
	}
}
