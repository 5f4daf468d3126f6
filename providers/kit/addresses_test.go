package kit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

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
