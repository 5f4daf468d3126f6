package machine

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestParseAddress(t *testing.T) {
	cases := map[string]struct {
		address, gateway, claim string
		bits                    *int32
		want                    hypervisor.Address
		err                     string
	}{
		"IPv4":        {address: "192.0.2.7", bits: ptr.To[int32](24), gateway: "192.0.2.1", want: address("192.0.2.7/24", "192.0.2.1")},
		"IPv6":        {address: "2001:db8::7", bits: ptr.To[int32](64), gateway: "2001:db8::1", want: address("2001:db8::7/64", "2001:db8::1")},
		"NoGateway":   {address: "192.0.2.7", bits: ptr.To[int32](32), want: address("192.0.2.7/32", "")},
		"LinkLocal":   {address: "2001:db8::7", bits: ptr.To[int32](64), gateway: "fe80::1", want: address("2001:db8::7/64", "fe80::1")},
		"Nonsense":    {address: "somewhere", bits: ptr.To[int32](24), err: `"somewhere" is not an IP address`},
		"WithPrefix":  {address: "192.0.2.7/24", bits: ptr.To[int32](24), err: "is not an IP address"},
		"Scoped":      {address: "fe80::7%eth0", bits: ptr.To[int32](64), err: "is not an IP address"},
		"TooLong":     {address: "192.0.2.7", bits: ptr.To[int32](33), err: "33 is not a valid prefix length for 192.0.2.7"},
		"NoLength":    {address: "192.0.2.7", err: "not a valid prefix length"},
		"BadGateway":  {address: "192.0.2.7", bits: ptr.To[int32](24), gateway: "router", err: `its gateway "router" is not an IP address`},
		"OtherFamily": {address: "192.0.2.7", bits: ptr.To[int32](24), gateway: "2001:db8::1", err: "its gateway 2001:db8::1 is of another family"},
		"OtherClaim":  {address: "192.0.2.7", bits: ptr.To[int32](24), claim: "other-0-0", err: `it belongs to the claim "other-0-0", not to "m-0-0"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from := &ipamv1.IPAddress{}
			from.Name = "m-0-0"
			from.Spec = ipamv1.IPAddressSpec{Address: tc.address, Gateway: tc.gateway, Prefix: tc.bits}
			from.Spec.ClaimRef.Name = "m-0-0"
			if tc.claim != "" {
				from.Spec.ClaimRef.Name = tc.claim
			}
			got, err := parseAddress("m-0-0", from)
			if tc.err == "" {
				if err != nil || got != tc.want {
					t.Errorf("parse() = %v, %v, want %v", got, err, tc.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.err) || hypervisor.ReasonFor(err, "") != infrav1.AddressInvalidReason {
				t.Errorf("err = %v, want AddressInvalid with %q", err, tc.err)
			}
		})
	}
}

func address(prefix, gateway string) hypervisor.Address {
	a := hypervisor.Address{Prefix: netip.MustParsePrefix(prefix)}
	if gateway != "" {
		a.Gateway = netip.MustParseAddr(gateway)
	}
	return a
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 62)
	cases := map[string]string{
		"": "", "esx-1": "esx-1", "esx1.example.test": "esx1.example.test", "Host_2": "Host_2",
		"2001:db8::7": "2001-db8-7", "host with spaces": "host-with-spaces", "-odd-": "odd", "..": "", "хост-1": "1",
		long + "b": long + "b", long + "bc": long + "b", long + ".c": long,
	}
	for name, want := range cases {
		if got := labelValue(name); got != want {
			t.Errorf("labelValue(%q) = %q, want %q", name, got, want)
		}
	}
}
