package modules

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDNSOf(t *testing.T) {
	zone := func(name string) []any {
		return []any{map[string]any{"name": name, "servers": []any{"192.0.2.53"}}}
	}
	platform := func(dns map[string]any) map[string]any { return map[string]any{"dns": dns} }
	one := []ForwardZone{{Name: "corp.example", Servers: []string{"192.0.2.53"}}}
	cases := map[string]struct {
		platform map[string]any
		services []string
		want     DNSFacts
	}{
		"Nothing":    {want: DNSFacts{Mode: DNSNone, Address: "10.111.255.254"}},
		"Hybrid":     {platform(map[string]any{"baseDomain": "apps.example"}), []string{"10.233.0.0/18"}, DNSFacts{Mode: DNSHybrid, BaseDomain: "apps.example", Address: "10.233.63.254"}},
		"Internal":   {platform(map[string]any{"baseDomain": "apps.example", "mode": "Internal"}), []string{"10.233.0.0/18"}, DNSFacts{Mode: DNSInternal, BaseDomain: "apps.example", Address: "10.233.63.254"}},
		"External":   {platform(map[string]any{"baseDomain": "corp.example", "forwardZones": zone("corp.example")}), []string{"10.233.0.0/18"}, DNSFacts{Mode: DNSExternal, BaseDomain: "corp.example", Address: "10.233.63.254", ForwardZones: one}},
		"OtherZone":  {platform(map[string]any{"baseDomain": "apps.corp.example", "forwardZones": zone("corp.example")}), []string{"10.233.0.0/18"}, DNSFacts{Mode: DNSHybrid, BaseDomain: "apps.corp.example", Address: "10.233.63.254", ForwardZones: one}},
		"ZonesAlone": {platform(map[string]any{"forwardZones": zone("corp.example"), "upstreamServers": []any{"192.0.2.1"}}), []string{"fd00::/112", "10.0.0.0/16"}, DNSFacts{Mode: DNSNone, Address: "fd00::ffff", ForwardZones: one, Servers: []string{"192.0.2.1"}}},
		"NoRange":    {nil, []string{"nonsense"}, DNSFacts{Mode: DNSNone}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.want.ForwardZones == nil {
				tc.want.ForwardZones = []ForwardZone{}
			}
			if tc.want.Servers == nil {
				tc.want.Servers = []string{}
			}
			if diff := cmp.Diff(tc.want, DNSOf(tc.platform, tc.services)); diff != "" {
				t.Errorf("DNSOf() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLastUsable(t *testing.T) {
	for block, want := range map[string]string{
		"10.233.0.0/18": "10.233.63.254", "10.0.0.7/24": "10.0.0.254", "10.0.0.0/31": "10.0.0.0",
		"10.0.0.0/32": "", "fd00::/108": "fd00::f:ffff", "": "",
	} {
		if got := lastUsable(block); got != want {
			t.Errorf("lastUsable(%q) = %q, want %q", block, got, want)
		}
	}
}

func TestImagesOf(t *testing.T) {
	for repository, want := range map[string]string{"": "", "registry.k8s.io": "", "hub.example/nova": "hub.example/nova"} {
		if got := ImagesOf(map[string]any{"imageRepository": repository}); got.Registry != want {
			t.Errorf("ImagesOf(%q) = %q, want %q", repository, got.Registry, want)
		}
	}
}
