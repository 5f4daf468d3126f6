package spec

import (
	"encoding/json"
	"flag"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type addressing = infrav1.InterfaceAddressing

var pools = []ipamv1.IPPoolReference{{Name: "four"}, {Name: "six"}}

// networks are network interfaces of machines by the name of their golden
// files.
var networks = map[string]struct {
	interfaces []vspherev1.NovaVSphereInterface
	pooled     [][]hypervisor.Address
	// arguments are the kernel arguments for Ignition; refused is the error if
	// there are none.
	arguments, refused string
}{
	"dhcp": {interfaces: []vspherev1.NovaVSphereInterface{{}}},
	"resolvers": {
		interfaces: []vspherev1.NovaVSphereInterface{{InterfaceAddressing: addressing{Nameservers: []string{"192.0.2.2"}}}},
		arguments:  "ifname=eth0:66:bb:fd:8f:40:01 ip=eth0:dhcp nameserver=192.0.2.2",
	},
	"two": {
		interfaces: []vspherev1.NovaVSphereInterface{{}, {}},
		arguments:  "ifname=eth0:66:bb:fd:8f:40:01 ip=eth0:dhcp ifname=eth1:2a:ec:ae:04:48:63 ip=eth1:dhcp",
	},
	"dual": {
		interfaces: []vspherev1.NovaVSphereInterface{{MTU: 9000, InterfaceAddressing: addressing{DHCP4: ptr.To(true), DHCP6: ptr.To(true)}}},
		arguments:  "ifname=eth0:66:bb:fd:8f:40:01 ip=eth0:dhcp:9000 ip=eth0:dhcp6:9000",
	},
	"static": {
		interfaces: []vspherev1.NovaVSphereInterface{{DeviceName: "lan", Routes: []vspherev1.Route{{To: "198.51.100.0/24", Via: "192.0.2.3"}, {To: "2001:db8:1::/48", Via: "2001:db8::3"}}, InterfaceAddressing: addressing{
			MACAddress: "02:00:00:0A:0B:0C", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Gateway4: "192.0.2.1", Gateway6: "2001:db8::1",
			Nameservers: []string{"192.0.2.2", "2001:db8::2"},
		}}},
		arguments: "ifname=lan:02:00:00:0a:0b:0c ip=192.0.2.10::192.0.2.1:24:m:lan:none ip=[2001:db8::10]::[2001:db8::1]:64:m:lan:none" +
			" rd.route=198.51.100.0/24:192.0.2.3:lan rd.route=[2001:db8:1::]/48:[2001:db8::3]:lan nameserver=192.0.2.2 nameserver=[2001:db8::2]",
	},
	"pools": {
		interfaces: []vspherev1.NovaVSphereInterface{{InterfaceAddressing: addressing{AddressesFromPools: pools, Gateway4: "192.0.2.254"}}},
		pooled: [][]hypervisor.Address{{
			{Prefix: netip.MustParsePrefix("192.0.2.10/24"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{Prefix: netip.MustParsePrefix("2001:db8::10/64"), Gateway: netip.MustParseAddr("2001:db8::1")},
		}},
		arguments: "ifname=eth0:66:bb:fd:8f:40:01 ip=192.0.2.10::192.0.2.254:24:m:eth0:none ip=[2001:db8::10]::[2001:db8::1]:64:m:eth0:none",
	},
	"none": {
		interfaces: []vspherev1.NovaVSphereInterface{{InterfaceAddressing: addressing{DHCP4: ptr.To(false)}}},
		arguments:  "ifname=eth0:66:bb:fd:8f:40:01 ip=eth0:off",
	},
	"overrides": {
		interfaces: []vspherev1.NovaVSphereInterface{{
			DHCP4Overrides: vspherev1.NovaVSphereDHCPOverrides{
				Hostname: "other", RouteMetric: 50, SendHostname: ptr.To(true), UseDNS: ptr.To(false), UseDomains: ptr.To(true),
				UseHostname: ptr.To(false), UseMTU: ptr.To(false), UseNTP: ptr.To(false), UseRoutes: ptr.To(true),
			},
			DHCP6Overrides:      vspherev1.NovaVSphereDHCPOverrides{UseDNS: ptr.To(false)},
			InterfaceAddressing: addressing{DHCP4: ptr.To(true), DHCP6: ptr.To(true)},
		}},
		refused: "searchDomains, dhcp4Overrides and dhcp6Overrides cannot be configured on a machine that Ignition sets up",
	},
	"search": {
		interfaces: []vspherev1.NovaVSphereInterface{{InterfaceAddressing: addressing{
			Addresses: []string{"192.0.2.10/24"}, Nameservers: []string{"192.0.2.2"}, SearchDomains: []string{"example.com", "example.org"},
		}}},
		refused: "searchDomains, dhcp4Overrides and dhcp6Overrides cannot be configured on a machine that Ignition sets up",
	},
	"metric": {
		interfaces: []vspherev1.NovaVSphereInterface{{Routes: []vspherev1.Route{{To: "198.51.100.0/24", Via: "192.0.2.3", Metric: 7}}}},
		refused:    "the metric of a route cannot be configured on a machine that Ignition sets up",
	},
}

func TestNetworkConfig(t *testing.T) {
	for name, tt := range networks {
		t.Run(name, func(t *testing.T) {
			all, err := NewNICs(vmID, tt.interfaces, tt.pooled)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(networkConfig(all), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "network-"+name+".json")
			if *update {
				if err := os.WriteFile(file, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestKernelArguments(t *testing.T) {
	for name, tt := range networks {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all, err := NewNICs(vmID, tt.interfaces, tt.pooled)
			g.Expect(err).NotTo(HaveOccurred())
			got, err := kernelArguments("m", all)
			if tt.refused != "" {
				g.Expect(err).To(MatchError(tt.refused))
				g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.InvalidSpecReason))
				g.Expect(hypervisor.IsTerminal(err)).To(BeTrue())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tt.arguments))
		})
	}
}

func TestNICsWaitForPools(t *testing.T) {
	g := NewWithT(t)
	_, err := NewNICs(vmID, []vspherev1.NovaVSphereInterface{{InterfaceAddressing: addressing{AddressesFromPools: pools}}},
		[][]hypervisor.Address{{{Prefix: netip.MustParsePrefix("192.0.2.10/24")}}})
	g.Expect(hypervisor.IsWaiting(err)).To(BeTrue())
	g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.WaitingForAddressPoolReason))
}

// MAC addresses are derived from the VM, are unique, and are in the locally
// administered range.
func TestMACAddress(t *testing.T) {
	seen := map[string]bool{}
	for i := range 5000 {
		id := uuid.NewSHA1(vmID, []byte{byte(i), byte(i >> 8)})
		for card := range 2 {
			text := MACAddress(id, card)
			if seen[text] || text != MACAddress(id, card) {
				t.Fatalf("%s of card %d of %s is taken, or not the same twice", text, card, id)
			}
			seen[text] = true
			mac, err := net.ParseMAC(text)
			if err != nil {
				t.Fatal(err)
			}
			if mac[0]&3 != 2 {
				t.Fatalf("%s is not locally administered, or a group's", text)
			}
		}
	}
}

func TestNICDevices(t *testing.T) {
	backing := &types.VirtualEthernetCardNetworkBackingInfo{}
	const mac = "02:00:00:00:00:01"
	tests := []struct {
		kind vspherev1.NovaVSphereInterfaceType
		want types.BaseVirtualDevice
	}{
		{"", &types.VirtualVmxnet3{}},
		{vspherev1.InterfaceVmxnet3, &types.VirtualVmxnet3{}},
		{vspherev1.InterfaceE1000e, &types.VirtualE1000e{}},
		{vspherev1.InterfaceE1000, &types.VirtualE1000{}},
		{vspherev1.InterfaceSRIOV, &types.VirtualSriovEthernetCard{}},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			g := NewWithT(t)
			w := nic{mac: mac, NovaVSphereInterface: vspherev1.NovaVSphereInterface{Type: tt.kind}}
			device := w.device(1, backing)
			g.Expect(device).To(BeAssignableToTypeOf(tt.want))
			card := device.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
			g.Expect(card.Key).To(BeEquivalentTo(newNICKey - 1))
			g.Expect(card.Backing).To(BeIdenticalTo(backing))
			g.Expect(card.MacAddress).To(Equal(mac))
			g.Expect(card.AddressType).To(Equal("manual"))
		})
	}
}
