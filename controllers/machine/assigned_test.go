package machine

import (
	"net/netip"
	"slices"
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

func TestOnlyAssigned(t *testing.T) {
	reported := []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.5"},
		{Type: clusterv1.MachineInternalIP, Address: "10.96.0.1"},
		{Type: clusterv1.MachineExternalIP, Address: "198.51.100.7"},
		{Type: clusterv1.MachineInternalIP, Address: "2001:db8::5"},
		{Type: clusterv1.MachineInternalIP, Address: "2001:db8::bad"},
		{Type: clusterv1.MachineHostName, Address: "m"},
	}
	everything := []string{"10.0.0.5", "10.96.0.1", "198.51.100.7", "2001:db8::5", "2001:db8::bad", "m"}
	for name, tc := range map[string]struct {
		interfaces []*infrav1.InterfaceAddressing
		pooled     string
		want       []string
	}{
		"Static":      {interfaces: []*infrav1.InterfaceAddressing{{Addresses: []string{"10.0.0.5/24"}}}, want: []string{"10.0.0.5", "m"}},
		"DualStack":   {interfaces: []*infrav1.InterfaceAddressing{{Addresses: []string{"10.0.0.5/24", "2001:db8::5/64"}}}, want: []string{"10.0.0.5", "2001:db8::5", "m"}},
		"Pool":        {interfaces: []*infrav1.InterfaceAddressing{{DHCP4: ptr.To(false)}}, pooled: "10.0.0.5", want: []string{"10.0.0.5", "m"}},
		"PoolOfIPv6":  {interfaces: []*infrav1.InterfaceAddressing{{DHCP4: ptr.To(false)}}, pooled: "2001:db8::5", want: []string{"2001:db8::5", "m"}},
		"DHCP":        {interfaces: []*infrav1.InterfaceAddressing{{DHCP4: ptr.To(true), DHCP6: ptr.To(true)}}, want: everything},
		"DHCPBeside":  {interfaces: []*infrav1.InterfaceAddressing{{Addresses: []string{"10.0.0.5/24"}}, {}}, want: []string{"10.0.0.5", "10.96.0.1", "198.51.100.7", "m"}},
		"DHCP6Beside": {interfaces: []*infrav1.InterfaceAddressing{{Addresses: []string{"10.0.0.5/24"}, DHCP6: ptr.To(true)}}, want: []string{"10.0.0.5", "2001:db8::5", "2001:db8::bad", "m"}},
		"NoAddress":   {interfaces: []*infrav1.InterfaceAddressing{{}}, want: everything},
		"NoInterface": {want: everything},
		"Unread":      {interfaces: []*infrav1.InterfaceAddressing{{DHCP4: ptr.To(false)}}, want: everything},
		"OnlyIPv6":    {interfaces: []*infrav1.InterfaceAddressing{{Addresses: []string{"2001:db8::5/64"}}}, want: []string{"2001:db8::5", "m"}},
		"NotAssigned": {interfaces: []*infrav1.InterfaceAddressing{{Addresses: []string{"10.0.0.9/24"}}}, want: []string{"m"}},
	} {
		t.Run(name, func(t *testing.T) {
			assigned := staticAddresses(tc.interfaces)
			if tc.pooled != "" {
				assigned = append(assigned, netip.MustParseAddr(tc.pooled))
			}
			is := onlyAssigned(reported, tc.interfaces, assigned)
			var got []string
			for _, a := range is {
				got = append(got, a.Address)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}
