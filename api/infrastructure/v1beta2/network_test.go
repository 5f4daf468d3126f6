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
	addressing := InterfaceAddressing{
		AddressesFromPools: pools("all"), Gateway4: "192.0.2.1", Nameservers: []string{"192.0.2.53"}, SearchDomains: []string{"example.com"},
	}
	domains := []InterfaceFailureDomain{
		{Name: "pools", AddressesFromPools: pools("b")},
		{Name: "dhcp", DHCP4: ptr.To(true)},
		{Name: "servers", Nameservers: []string{"203.0.113.53"}, SearchDomains: []string{"c.example.com"}},
		{Name: "nothing"},
	}
	onZVirt := NovaZVirtInterface{Network: "net/net", InterfaceAddressing: addressing, FailureDomains: domains}
	onVSphere := NovaVSphereInterface{Network: "net", InterfaceAddressing: addressing}
	for _, d := range domains {
		onVSphere.FailureDomains = append(onVSphere.FailureDomains, NovaVSphereInterfaceFailureDomain{InterfaceFailureDomain: d})
	}
	for domain, change := range map[string]func(*InterfaceAddressing){
		"":        func(*InterfaceAddressing) {},
		"other":   func(*InterfaceAddressing) {},
		"nothing": func(*InterfaceAddressing) {},
		"pools":   func(a *InterfaceAddressing) { a.AddressesFromPools, a.Gateway4 = pools("b"), "" },
		"dhcp":    func(a *InterfaceAddressing) { a.AddressesFromPools, a.Gateway4, a.DHCP4 = nil, "", ptr.To(true) },
		"servers": func(a *InterfaceAddressing) {
			a.Nameservers, a.SearchDomains = []string{"203.0.113.53"}, []string{"c.example.com"}
		},
	} {
		zvirt, vsphere := onZVirt, onVSphere
		change(&zvirt.InterfaceAddressing)
		change(&vsphere.InterfaceAddressing)
		if diff := cmp.Diff(zvirt, onZVirt.In(domain)); diff != "" {
			t.Errorf("zVirt in %q: -want +got\n%s", domain, diff)
		}
		if diff := cmp.Diff(vsphere, onVSphere.In(domain)); diff != "" {
			t.Errorf("vSphere in %q: -want +got\n%s", domain, diff)
		}
	}
}

func TestRoutesInFailureDomain(t *testing.T) {
	everywhere, there := []Route{{To: "198.51.100.0/24", Via: "192.0.2.2"}}, []Route{{To: "198.51.100.0/24", Via: "203.0.113.2"}}
	n := NovaVSphereInterface{Routes: everywhere, FailureDomains: []NovaVSphereInterfaceFailureDomain{
		{InterfaceFailureDomain: InterfaceFailureDomain{Name: "own"}, Routes: there},
		{InterfaceFailureDomain: InterfaceFailureDomain{Name: "none"}},
	}}
	for domain, want := range map[string][]Route{"": everywhere, "other": everywhere, "none": everywhere, "own": there} {
		if diff := cmp.Diff(want, n.In(domain).Routes); diff != "" {
			t.Errorf("in %q: -want +got\n%s", domain, diff)
		}
	}
}
