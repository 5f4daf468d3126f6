package pvesim

import (
	"net/netip"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// Each list and object has the fields of the schema: each response of a test is
// compared with it.
func TestReads(t *testing.T) {
	c := start(t, Options{Inventory: cluster.Inventory{
		Pools:    []string{"p1"},
		VNets:    []cluster.VNetSpec{{Name: "blue", Zone: "z1", Tag: 7}},
		Mappings: []cluster.MappingSpec{{ID: "gpu", Paths: map[string]string{"pve1": "0000:01:00.0"}}},
	}})
	const vm = "/nodes/pve1/qemu/100"
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=100", "pool=p1")
	c.ok(put, vm+"/config", "hostpci0=mapping=gpu", "net0=virtio,bridge=blue")
	c.task(post, vm+"/status/start")
	guest := cluster.Guest{
		HostName: "a", System: map[string]string{"id": "debian", "version_id": "12"}, Files: map[string]string{"/etc/x": "text"},
		NICs: []cluster.GuestNIC{{Name: "eth0", MAC: "BC:24:11:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24")}}},
	}
	if err := c.server.Cluster.SetGuest("100", guest); err != nil {
		t.Fatal(err)
	}
	c.ok(post, "/cluster/ha/resources", "sid=vm:100", "max_restart=2")
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=101")
	c.ok(post, "/cluster/ha/resources", "sid=101")
	c.ok(post, "/cluster/ha/rules", "rule=apart", "type=resource-affinity", "affinity=negative", "resources=vm:100,vm:101")
	for _, path := range []string{
		"/version", "/access/permissions", "/cluster/resources", "/cluster/tasks", "/cluster/nextid", "/cluster/status", "/cluster/options",
		"/cluster/ha/resources", "/cluster/ha/resources/vm:100", "/cluster/ha/rules", "/cluster/ha/rules/apart", "/cluster/mapping/pci",
		"/cluster/mapping/pci/gpu", "/cluster/sdn/vnets", "/cluster/sdn/zones", "/nodes", "/nodes/pve1/status", "/nodes/pve1/version",
		"/nodes/pve1/network", "/nodes/pve1/storage", "/nodes/pve1/storage/shared/status", "/nodes/pve1/storage/shared/content",
		"/nodes/pve1/tasks", "/nodes/pve1/qemu", vm + "/config", vm + "/pending", vm + "/status/current", vm + "/agent/get-host-name",
		vm + "/agent/get-osinfo", vm + "/agent/network-get-interfaces", vm + "/agent/file-read?file=/etc/x", "/pools", "/pools/p1", "/storage",
		"/storage/shared", "/nodes/pve1/storage/shared/content/shared:9000/base-9000-disk-0.qcow2",
	} {
		c.ok(get, path)
	}
	c.ok(post, vm+"/agent/ping")
	c.refused(500, "Agent error: failed to open file '/etc/y'", get, vm+"/agent/file-read?file=/etc/y")
	c.refused(400, "rule defines more resources than available nodes", put, "/cluster/ha/rules/apart", "type=resource-affinity", "resources=vm:100,vm:101,vm:100,vm:101")
	c.refused(500, "pool 'p1' is not empty (contains VM 100)", del, "/pools/p1")
	c.refused(500, "unable to remove VM 101 - used in HA resources and purge parameter not set.", del, "/nodes/pve1/qemu/101")
	c.ok(del, "/cluster/ha/rules/apart")
}
