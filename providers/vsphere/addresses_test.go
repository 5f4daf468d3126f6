package vsphere

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
		{"link-local", "no other host can use it", []types.GuestNicInfo{card(4000, ip("fe80::1", 64), ip("169.254.3.4", 16), ip("2001:db8::1", 64))}, []string{"2001:db8::1"}},
		{"containers", "a bridge is no card of the VM", []types.GuestNicInfo{card(-1, ip("10.244.0.1", 24)), card(4000, ip("10.0.0.2", 24))}, []string{"10.0.0.2"}},
		{"floating", "the endpoint's address moves", []types.GuestNicInfo{card(4000, ip("10.0.0.9", 32), ip("10.0.0.2", 24))}, []string{"10.0.0.2"}},
		{"single", "some networks give every host a network of its own", []types.GuestNicInfo{card(4000, ip("10.0.0.9", 32))}, []string{"10.0.0.9"}},
		{"v6 floating", "as for IPv4", []types.GuestNicInfo{card(4000, ip("2001:db8::9", 128), ip("2001:db8::1", 64))}, []string{"2001:db8::1"}},
		{"no prefixes", "older tools report bare addresses", []types.GuestNicInfo{{DeviceConfigId: 4000, IpAddress: []string{"10.0.0.2", "junk"}}}, []string{"10.0.0.2"}},
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
			if diff := cmp.Diff(want, addresses("m", tt.cards)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}
