package spec

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestAddresses(t *testing.T) {
	card := func(device int32, prefixes ...types.NetIpConfigInfoIpAddress) types.GuestNicInfo {
		return types.GuestNicInfo{DeviceConfigId: device, IpConfig: &types.NetIpConfigInfo{IpAddress: prefixes}}
	}
	ip := func(address string, bits int32) types.NetIpConfigInfoIpAddress {
		return types.NetIpConfigInfoIpAddress{IpAddress: address, PrefixLength: bits}
	}
	tests := []struct {
		name   string
		reason string
		cards  []types.GuestNicInfo
		want   []string
	}{
		{"none", "a VM that only has its name has not booted", nil, nil},
		{"order", "the first card's first address leads", []types.GuestNicInfo{card(4000, ip("10.0.0.2", 24), ip("10.0.0.1", 24)), card(4001, ip("192.168.0.1", 16))},
			[]string{"10.0.0.2", "10.0.0.1", "192.168.0.1"}},
		{"link-local", "no other host can use it", []types.GuestNicInfo{card(4000, ip("fe80::1", 64), ip("169.254.3.4", 16), ip("fd00::1", 64))}, []string{"fd00::1"}},
		{"containers", "a bridge is no card of the VM", []types.GuestNicInfo{card(-1, ip("10.244.0.1", 24)), card(4000, ip("10.0.0.2", 24))}, []string{"10.0.0.2"}},
		{"floating", "the endpoint's address moves", []types.GuestNicInfo{card(4000, ip("10.0.0.9", 32), ip("10.0.0.2", 24))}, []string{"10.0.0.2"}},
		{"single", "some networks give every host a network of its own", []types.GuestNicInfo{card(4000, ip("10.0.0.9", 32))}, []string{"10.0.0.9"}},
		{"v6 floating", "as for IPv4", []types.GuestNicInfo{card(4000, ip("fd00::9", 128), ip("fd00::1", 64))}, []string{"fd00::1"}},
		{"no prefixes", "older tools report bare addresses", []types.GuestNicInfo{{DeviceConfigId: 4000, IpAddress: []string{"10.0.0.2", "junk"}}}, []string{"10.0.0.2"}},
		{"DHCPv6", "it gives addresses without a network, and the other family has one", []types.GuestNicInfo{card(4000, ip("10.0.0.2", 24), ip("fd00::9", 128))}, []string{"10.0.0.2", "fd00::9"}},
		{"v6 first", "the node's own order of families is kept", []types.GuestNicInfo{card(4000, ip("fd00::1", 64), ip("10.0.0.2", 24))}, []string{"fd00::1", "10.0.0.2"}},
		{"cards", "the VM's order of cards counts, not the guest's", []types.GuestNicInfo{card(4001, ip("192.168.0.1", 16)), card(4000, ip("10.0.0.2", 24))}, []string{"10.0.0.2", "192.168.0.1"}},
		{"twice", "an address counts once", []types.GuestNicInfo{card(4000, ip("10.0.0.2", 24)), card(4001, ip("10.0.0.2", 24))}, []string{"10.0.0.2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var want []clusterv1.MachineAddress
			for _, a := range tt.want {
				want = append(want, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a})
			}
			if len(want) > 0 {
				want = append(want,
					clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "m"},
					clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: "m"})
			}
			if diff := cmp.Diff(want, Addresses("m", "m", tt.cards)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

func TestNICs(t *testing.T) {
	guestNICs := []types.GuestNicInfo{
		{DeviceConfigId: 4001, Network: "storage", MacAddress: "00:50:56:00:00:02"},
		{DeviceConfigId: -1, MacAddress: "0a:58:00:00:00:01", IpAddress: []string{"10.244.0.1"}},
		{DeviceConfigId: 4000, Network: "blue", MacAddress: "00:50:56:00:00:01", IpAddress: []string{"fe80::1", "10.0.0.2"}},
	}
	want := []hypervisor.NIC{
		{Network: "blue", MAC: "00:50:56:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}},
		{Network: "storage", MAC: "00:50:56:00:00:02"},
	}
	if got := ReportedNICs(guestNICs); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPublicAddressesAndNames(t *testing.T) {
	guestNICs := []types.GuestNicInfo{{DeviceConfigId: 4000, IpAddress: []string{"203.0.113.7", "100.64.1.1", "10.0.0.2", "2001:db8::1"}}}
	want := []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "203.0.113.7"},
		{Type: clusterv1.MachineInternalIP, Address: "100.64.1.1"},
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.2"},
		{Type: clusterv1.MachineInternalIP, Address: "2001:db8::1"},
		{Type: clusterv1.MachineExternalIP, Address: "203.0.113.7"},
		{Type: clusterv1.MachineExternalIP, Address: "2001:db8::1"},
		{Type: clusterv1.MachineHostName, Address: "m"},
		{Type: clusterv1.MachineInternalDNS, Address: "m"},
		{Type: clusterv1.MachineInternalDNS, Address: "m.example.org"},
	}
	if diff := cmp.Diff(want, Addresses("m", "m.example.org", guestNICs)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(want[:len(want)-1], Addresses("m", "other.example.org", guestNICs)); diff != "" {
		t.Errorf("a name that is not the machine's does not count: -want +got\n%s", diff)
	}
}
