package v1beta2_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
)

// A failure domain with a subnet of its own replaces the source of addresses as a
// whole: a pool or a gateway of another subnet must not remain. All other settings
// are replaced one by one.
func TestInterfaceInFailureDomain(t *testing.T) {
	pools := func(name string) []ipamv1.IPPoolReference { return []ipamv1.IPPoolReference{{Name: name}} }
	addressing := infrav1.InterfaceAddressing{
		AddressesFromPools: pools("all"), Gateway4: "192.0.2.1", Nameservers: []string{"192.0.2.53"}, SearchDomains: []string{"example.com"},
	}
	domains := []infrav1.InterfaceFailureDomain{
		{Name: "pools", AddressesFromPools: pools("b")},
		{Name: "dhcp", DHCP4: ptr.To(true)},
		{Name: "servers", Nameservers: []string{"203.0.113.53"}, SearchDomains: []string{"c.example.com"}},
		{Name: "nothing"},
	}
	onZVirt := zvirtv1.NovaZVirtInterface{Network: "net/net", InterfaceAddressing: addressing, FailureDomains: domains}
	onVSphere := vspherev1.NovaVSphereInterface{Network: "net", InterfaceAddressing: addressing}
	for _, d := range domains {
		onVSphere.FailureDomains = append(onVSphere.FailureDomains, vspherev1.NovaVSphereInterfaceFailureDomain{InterfaceFailureDomain: d})
	}
	for domain, change := range map[string]func(*infrav1.InterfaceAddressing){
		"":        func(*infrav1.InterfaceAddressing) {},
		"other":   func(*infrav1.InterfaceAddressing) {},
		"nothing": func(*infrav1.InterfaceAddressing) {},
		"pools":   func(a *infrav1.InterfaceAddressing) { a.AddressesFromPools, a.Gateway4 = pools("b"), "" },
		"dhcp": func(a *infrav1.InterfaceAddressing) {
			a.AddressesFromPools, a.Gateway4, a.DHCP4 = nil, "", ptr.To(true)
		},
		"servers": func(a *infrav1.InterfaceAddressing) {
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
	everywhere, there := []vspherev1.Route{{To: "198.51.100.0/24", Via: "192.0.2.2"}}, []vspherev1.Route{{To: "198.51.100.0/24", Via: "203.0.113.2"}}
	n := vspherev1.NovaVSphereInterface{Routes: everywhere, FailureDomains: []vspherev1.NovaVSphereInterfaceFailureDomain{
		{InterfaceFailureDomain: infrav1.InterfaceFailureDomain{Name: "own"}, Routes: there},
		{InterfaceFailureDomain: infrav1.InterfaceFailureDomain{Name: "none"}},
	}}
	for domain, want := range map[string][]vspherev1.Route{"": everywhere, "other": everywhere, "none": everywhere, "own": there} {
		if diff := cmp.Diff(want, n.In(domain).Routes); diff != "" {
			t.Errorf("in %q: -want +got\n%s", domain, diff)
		}
	}
}
