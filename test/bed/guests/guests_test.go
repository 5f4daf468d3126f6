package guests

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestSpec(t *testing.T) {
	got := spec(vcenter.VM{
		Name:     "demo-worker-1",
		BIOSUUID: "4237A1B2-C3D4-E5F6-0102-030405060708",
		NICs:     []vcenter.NIC{{MAC: "00:50:56:00:00:01"}, {MAC: "00:50:56:00:00:02"}},
		ExtraConfig: map[string]string{
			"guestinfo.userdata": "I2Nsb3VkLWNvbmZpZw==",
			"disk.enableUUID":    "TRUE",
		},
	})
	want := host.Spec{
		Name: "demo-worker-1",
		Disk: "4237a1b2-c3d4-e5f6-0102-030405060708",
		MACs: []string{"00:50:56:00:00:01", "00:50:56:00:00:02"},
		DMI: map[string]string{
			"sys_vendor":     "VMware, Inc.",
			"product_name":   "VMware7,1",
			"product_uuid":   "4237a1b2-c3d4-e5f6-0102-030405060708",
			"product_serial": "VMware-42 37 a1 b2 c3 d4 e5 f6-01 02 03 04 05 06 07 08",
		},
		GuestInfo: map[string]string{"guestinfo.userdata": "I2Nsb3VkLWNvbmZpZw=="},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestNICs(t *testing.T) {
	address := func(mac, prefix string) host.Address {
		return host.Address{MAC: mac, Prefix: netip.MustParsePrefix(prefix)}
	}
	got := nics([]host.Address{
		address("a", "10.77.0.101/24"), address("b", "192.0.2.1/24"), address("a", "10.77.0.10/32"),
	})
	want := []vcenter.GuestNIC{
		{MAC: "a", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.0.101/24"), netip.MustParsePrefix("10.77.0.10/32")}},
		{MAC: "b", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("nics (-want +got):\n%s", diff)
	}
}
