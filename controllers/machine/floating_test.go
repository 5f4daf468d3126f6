package machine

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// names is a DNS server in memory. It fails for unknown names.
type names struct {
	has     map[string][]netip.Addr
	lookups int
}

func (n *names) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	n.lookups++
	if _, bounded := ctx.Deadline(); !bounded || network != "ip" {
		return nil, errors.New("a lookup needs a deadline and both families")
	}
	found, known := n.has[host]
	if !known {
		return nil, errors.New("no such host")
	}
	return found, nil
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// An address of an endpoint that is given by DNS name is not an address of the machine that has it at
// the moment.
func TestEndpointByName(t *testing.T) {
	dns := map[string][]netip.Addr{
		"vip":   addrs("10.0.0.100", "2001:db8::100"),
		"all":   addrs("10.0.0.5", "10.0.0.6", "10.0.0.7"),
		"mixed": addrs("::ffff:10.0.0.100"),
	}
	const v4, vip, second, v6, vip6 = "10.0.0.5", "10.0.0.100", "10.1.0.5", "2001:db8::5", "2001:db8::100"
	for name, tc := range map[string]struct {
		endpoint string
		nics     [][]string
		static   []string
		want     []string
		lookups  int
	}{
		"Floats":       {endpoint: "vip", nics: [][]string{{v4, vip, v6, vip6}}, want: []string{v4, v6, "m"}, lookups: 1},
		"Mapped":       {endpoint: "mixed", nics: [][]string{{v4, vip}}, want: []string{v4, "m"}, lookups: 1},
		"OnTheSecond":  {endpoint: "vip", nics: [][]string{{v4}, {second, vip}}, want: []string{v4, second, "m"}, lookups: 1},
		"OnlyOne":      {endpoint: "vip", nics: [][]string{{vip}}, want: []string{vip, "m"}},
		"Static":       {endpoint: "vip", nics: [][]string{{v4, vip}}, static: []string{v4 + "/24", vip + "/24"}, want: []string{v4, vip, "m"}},
		"AllMachines":  {endpoint: "all", nics: [][]string{{v4, vip}, {second}}, want: []string{v4, vip, second, "m"}, lookups: 1},
		"Unresolvable": {endpoint: "none", nics: [][]string{{v4, vip}}, want: []string{v4, vip, "m"}, lookups: 1},
		"Address":      {endpoint: vip, nics: [][]string{{v4, vip}}, want: []string{v4, vip, "m"}},
		"NoEndpoint":   {nics: [][]string{{v4, vip}}, want: []string{v4, vip, "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			resolver := &names{has: dns}
			r := &Reconciler[*vspherev1.NovaVSphereMachine]{Resolver: resolver}
			infra := &vspherev1.NovaVSphereMachine{}
			on, off := true, false
			for i := range tc.nics {
				addressing := infrav1.InterfaceAddressing{DHCP4: &on, DHCP6: &on}
				if i == 0 && tc.static != nil {
					addressing = infrav1.InterfaceAddressing{DHCP4: &off, Addresses: tc.static}
				}
				infra.Spec.Network.Interfaces = append(infra.Spec.Network.Interfaces, vspherev1.NovaVSphereInterface{InterfaceAddressing: addressing})
			}
			s := &scope[*vspherev1.NovaVSphereMachine]{infra: infra, cluster: &clusterv1.Cluster{}}
			s.cluster.Spec.ControlPlaneEndpoint.Host = tc.endpoint
			vm := &hypervisor.VM{}
			for _, texts := range tc.nics {
				vm.NICs = append(vm.NICs, hypervisor.NIC{Addresses: addrs(texts...)})
				for _, text := range texts {
					vm.Addresses = append(vm.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: text})
				}
			}
			vm.Addresses = append(vm.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "m"})
			for range 2 { // the result is kept
				var got []string
				for _, a := range r.addresser().ownAddresses(t.Context(), s, vm) {
					got = append(got, a.Address)
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("want %v, got %v", tc.want, got)
				}
			}
			if resolver.lookups != tc.lookups {
				t.Errorf("want %d lookups, got %d", tc.lookups, resolver.lookups)
			}
		})
	}
}

// While DNS fails, the addresses found before stay, and not every reconcile
// repeats the lookup.
func TestLookups(t *testing.T) {
	dns := &names{has: map[string][]netip.Addr{"vip": addrs("10.0.0.100")}}
	l, now := &lookups{}, time.Now()
	for _, step := range []struct {
		after   time.Duration
		has     []netip.Addr
		want    []netip.Addr
		lookups int
	}{
		{0, addrs("10.0.0.100"), addrs("10.0.0.100"), 1},
		{lookupFresh / 2, addrs("10.0.0.101"), addrs("10.0.0.100"), 1},
		{lookupFresh, addrs("10.0.0.101"), addrs("10.0.0.101"), 2},
		{2 * lookupFresh, nil, addrs("10.0.0.101"), 3},
		{2*lookupFresh + lookupFresh/2, nil, addrs("10.0.0.101"), 3},
	} {
		if dns.has["vip"] = step.has; step.has == nil {
			delete(dns.has, "vip")
		}
		if got := l.resolve(t.Context(), dns, "vip", now.Add(step.after)); !slices.Equal(got, step.want) || dns.lookups != step.lookups {
			t.Errorf("after %s: want %v by lookup %d, got %v by lookup %d", step.after, step.want, step.lookups, got, dns.lookups)
		}
	}
}
