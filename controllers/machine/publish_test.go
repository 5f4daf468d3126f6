package machine

import (
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestNetworkInterfaces(t *testing.T) {
	g := NewWithT(t)
	g.Expect(networkInterfaces(nil)).To(BeEmpty())
	g.Expect(networkInterfaces([]hypervisor.NIC{
		{Network: "blue", MAC: "00:50:56:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		{MAC: "00:50:56:00:00:02"},
	})).To(Equal([]infrav1.NetworkInterfaceStatus{
		{Network: "blue", MACAddress: "00:50:56:00:00:01", Addresses: []string{"192.0.2.1", "2001:db8::1"}},
		{MACAddress: "00:50:56:00:00:02"},
	}))
}

// A guest that reports too much does not make the status invalid.
func TestNetworkInterfacesAreBounded(t *testing.T) {
	g := NewWithT(t)
	long := hypervisor.NIC{Network: strings.Repeat("n", 5000), MAC: strings.Repeat("0", 500), Addresses: make([]netip.Addr, 500)}
	for i := range long.Addresses {
		long.Addresses[i] = netip.MustParseAddr("fe80::1").WithZone(strings.Repeat("z", 5000))
	}
	got := networkInterfaces([]hypervisor.NIC{long, long, long, long, long, long, long, long, long, long, long, long})
	g.Expect(got).To(HaveLen(infrav1.MaxNetworkInterfaces))
	g.Expect(got[0].Network).To(HaveLen(1024))
	g.Expect(got[0].MACAddress).To(HaveLen(64))
	g.Expect(got[0].Addresses).To(And(HaveLen(infrav1.MaxReportedAddresses), HaveEach("fe80::1")))
}
