package vsphere

import (
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// The machines of one control plane have one template. At each of two sites
// they get the network, the kind of addresses, the name servers and the routes
// of that site.
func TestControlPlaneOnTwoSites(t *testing.T) {
	b := newBed(t)
	for site, network := range map[string]string{"site-a": "VM Network", "site-b": "DC0_DVPG0"} {
		b.cluster.Spec.FailureDomains = append(b.cluster.Spec.FailureDomains, vspherev1.NovaVSphereFailureDomain{
			FailureDomain: infrav1.FailureDomain{Name: site, Networks: []infrav1.FailureDomainNetwork{{Network: network}}},
		})
	}
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	spec := vspherev1.NovaVSphereInterface{Network: "any", FailureDomains: []vspherev1.NovaVSphereInterfaceFailureDomain{
		{
			InterfaceFailureDomain: infrav1.InterfaceFailureDomain{
				Name: "site-a", AddressesFromPools: []ipamv1.IPPoolReference{{Name: "site-a"}}, Nameservers: []string{"192.0.2.53"},
			},
			Routes: []vspherev1.Route{{To: "203.0.113.0/24", Via: "192.0.2.2"}},
		},
		{InterfaceFailureDomain: infrav1.InterfaceFailureDomain{Name: "site-b", DHCP4: ptr.To(true)}},
	}}
	given := map[string][][]hypervisor.Address{
		"site-a": {{{Prefix: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1")}}},
	}
	for site, want := range map[string]struct {
		network string
		guest   map[string]any
	}{
		"site-a": {"VM Network", map[string]any{
			"dhcp4": false, "addresses": []any{"192.0.2.7/24"}, "gateway4": "192.0.2.1",
			"nameservers": map[string]any{"addresses": []any{"192.0.2.53"}},
			"routes":      []any{map[string]any{"to": "203.0.113.0/24", "via": "192.0.2.2"}},
		}},
		"site-b": {"DC0_DVPG0", map[string]any{"dhcp4": true}},
	} {
		m := b.machine("cp-" + site)
		m.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{spec}
		l := createOptions
		l.Zone, l.Interfaces = site, given[site]
		b.Expect(b.connect(m).Create(b.ctx(), m, l)).To(Succeed())
		b.waitForState(m, hypervisor.Running)
		vm := b.vmNamed(m.Name)[0]
		b.Expect(vm.NICs).To(ConsistOf(HaveField("Network", want.network)))
		document, err := base64.StdEncoding.DecodeString(vm.ExtraConfig["guestinfo.metadata"])
		b.Expect(err).NotTo(HaveOccurred())
		var metadata struct {
			Network struct{ Ethernets map[string]map[string]any }
		}
		b.Expect(json.Unmarshal(document, &metadata)).To(Succeed())
		guest := metadata.Network.Ethernets["eth0"]
		delete(guest, "match")
		delete(guest, "set-name")
		want.guest["dhcp6"] = false
		b.Expect(guest).To(Equal(want.guest), site)
	}
}
