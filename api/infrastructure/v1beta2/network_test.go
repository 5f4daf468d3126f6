package v1beta2

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// A failure domain with a subnet of its own replaces the source of addresses as a
// whole: a pool or a gateway of another subnet must not remain. All other settings
// are replaced one by one.
func TestInterfaceInFailureDomain(t *testing.T) {
	pools := func(name string) []ipamv1.IPPoolReference { return []ipamv1.IPPoolReference{{Name: name}} }
	own := InterfaceAddressing{
		AddressesFromPools: pools("all"), Gateway4: "192.0.2.1", Nameservers: []string{"192.0.2.53"},
		SearchDomains: []string{"example.com"}, Routes: []Route{{To: "198.51.100.0/24", Via: "192.0.2.2"}},
		FailureDomains: []InterfaceFailureDomain{
			{Name: "pools", AddressesFromPools: pools("b")},
			{Name: "dhcp", DHCP4: ptr.To(true)},
			{Name: "servers", Nameservers: []string{"203.0.113.53"}, SearchDomains: []string{"c.example.com"}, Routes: []Route{{To: "198.51.100.0/24", Via: "203.0.113.2"}}},
			{Name: "nothing"},
		},
	}
	for domain, change := range map[string]func(*InterfaceAddressing){
		"":        func(*InterfaceAddressing) {},
		"other":   func(*InterfaceAddressing) {},
		"nothing": func(*InterfaceAddressing) {},
		"pools":   func(a *InterfaceAddressing) { a.AddressesFromPools, a.Gateway4 = pools("b"), "" },
		"dhcp":    func(a *InterfaceAddressing) { a.AddressesFromPools, a.Gateway4, a.DHCP4 = nil, "", ptr.To(true) },
		"servers": func(a *InterfaceAddressing) {
			a.Nameservers, a.SearchDomains, a.Routes = []string{"203.0.113.53"}, []string{"c.example.com"}, []Route{{To: "198.51.100.0/24", Via: "203.0.113.2"}}
		},
	} {
		want := own
		change(&want)
		if diff := cmp.Diff(&want, own.In(domain)); diff != "" {
			t.Errorf("in %q: -want +got\n%s", domain, diff)
		}
	}
}
