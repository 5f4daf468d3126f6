package kit

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// A node has the addresses of all its network interfaces, each once, and none until its guest
// reports one.
func TestNodeAddresses(t *testing.T) {
	g := NewWithT(t)
	g.Expect(NodeAddresses("m", []hypervisor.NIC{{MAC: "02:00:00:00:00:01"}}, "10.0.0.9")).To(BeEmpty())
	a, b, endpoint := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("10.0.0.9")
	g.Expect(NodeAddresses("m", []hypervisor.NIC{{Addresses: []netip.Addr{a, endpoint}}, {Addresses: []netip.Addr{b, a}}}, "10.0.0.9")).To(Equal([]clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.2"}, {Type: clusterv1.MachineInternalIP, Address: "fd00::2"},
		{Type: clusterv1.MachineHostName, Address: "m"}, {Type: clusterv1.MachineInternalDNS, Address: "m"},
	}))
}

// Addresses of pools come first, and an address that cannot be parsed names its field.
func TestStaticAddresses(t *testing.T) {
	g := NewWithT(t)
	o := hypervisor.CreateOptions{Interfaces: [][]hypervisor.Address{nil, {{Prefix: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")}}}}
	all, err := StaticAddresses(o.Pooled(1), []string{"fd00::5/64"}, 1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(Equal([]hypervisor.Address{o.Interfaces[1][0], {Prefix: netip.MustParsePrefix("fd00::5/64")}}))
	g.Expect(o.Pooled(2)).To(BeEmpty())
	_, err = StaticAddresses(nil, []string{"10.0.0.5"}, 3)
	g.Expect(err).To(MatchError(ContainSubstring("network.interfaces[3].addresses")))
	g.Expect(hypervisor.IsTerminal(err)).To(BeTrue())
}

func TestEndpointIsNoAddressOfANode(t *testing.T) {
	addresses := func(ips ...string) (all []clusterv1.MachineAddress) {
		for _, ip := range ips {
			all = append(all, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: ip})
		}
		return append(all, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "m"})
	}
	for name, c := range map[string]struct {
		endpoint       string
		reported, want []clusterv1.MachineAddress
	}{
		"none":     {"", addresses("10.0.0.2"), addresses("10.0.0.2")},
		"floating": {"10.0.0.9", addresses("10.0.0.9", "10.0.0.2"), addresses("10.0.0.2")},
		"spelling": {"2001:DB8:0::9", addresses("2001:db8::9", "2001:db8::2"), addresses("2001:db8::2")},
		"only one": {"10.0.0.9", addresses("10.0.0.9"), addresses("10.0.0.9")},
		"a name":   {"m", addresses("10.0.0.2"), addresses("10.0.0.2")[:1]},
	} {
		if diff := cmp.Diff(c.want, WithoutEndpoint(c.reported, c.endpoint)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
