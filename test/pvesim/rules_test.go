package pvesim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// The texts are those of qemu-server, commit e6352be, and of pve-storage.
func TestRejections(t *testing.T) {
	c := start(t, Options{Inventory: cluster.Inventory{
		Storages: []cluster.StorageSpec{
			{ID: "local", Type: "dir", Content: []string{"iso"}},
			{ID: "lvm1", Type: "lvmthin", Content: []string{"images"}},
			{ID: "thick", Type: "lvm", Content: []string{"images"}, Shared: true, SizeGiB: 10},
			{ID: "shared", Type: "nfs", Content: []string{"images", "iso"}, Shared: true},
			{ID: "off", Type: "dir", Content: []string{"images"}, Disabled: true},
		},
		Templates: []cluster.TemplateSpec{
			{VMID: 9000, Name: "shared", Node: "pve1", Storage: "shared"},
			{VMID: 9001, Name: "local", Node: "pve1", Storage: "lvm1"},
		},
	}})
	const vm, clone, local = "/nodes/pve1/qemu/100", "/nodes/pve1/qemu/9000/clone", "/nodes/pve1/qemu/9001/clone"
	c.task(post, clone, "newid=100", "name=a")
	for _, test := range []struct {
		name           string
		status         int
		text           string
		method, target string
		params         []string
	}{
		{"used VMID", 500, "unable to create VM 100: config file already exists", post, clone, []string{"newid=100"}},
		{"VMID elsewhere", 500, "unable to create VM 100: config file already exists", post, clone, []string{"newid=100", "target=pve2"}},
		{"local disk", 500, "can't clone VM to node 'pve2' (VM uses local storage)", post, local, []string{"newid=101", "target=pve2"}},
		{"local target", 500, "can't clone to non-shared storage 'lvm1'", post, clone, []string{"newid=101", "target=pve2", "storage=lvm1", "full=1"}},
		{"linked to another", 500, "parameter 'storage' not allowed for linked clones", post, clone, []string{"newid=101", "storage=lvm1"}},
		{"no images", 400, "storage: storage 'local' does not support vm images", post, clone, []string{"newid=101", "storage=local", "full=1"}},
		{"disabled", 500, "storage 'off' is disabled", post, clone, []string{"newid=101", "storage=off", "full=1"}},
		{"no storage", 500, "storage 'gone' does not exist", post, clone, []string{"newid=101", "storage=gone", "full=1"}},
		{"no pool", 500, "pool 'gone' does not exist", post, clone, []string{"newid=101", "pool=gone"}},
		{"no node", 500, "no such cluster node 'gone'", post, clone, []string{"newid=101", "target=gone"}},
		{"snapshot", 500, "snapshot 's1' does not exist", post, clone, []string{"newid=101", "snapname=s1"}},
		{"linked of a VM", 500, "Linked clone feature is not supported for", post, vm + "/clone", []string{"newid=101", "full=0"}},
		{"other node", 500, "Configuration file 'nodes/pve2/qemu-server/100.conf' does not exist", get, "/nodes/pve2/qemu/100/config", nil},
		{"unknown path", 501, "Method 'GET /nodes/pve1/qemu/100/nothing' not implemented", get, vm + "/nothing", nil},
		{"unknown node", 500, "hostname lookup 'gone' failed", get, "/nodes/gone/status", nil},
		{"nothing to change", 500, "no options specified", put, vm + "/config", nil},
		{"digest", 500, "checksum mismatch (file change by other user?)", put, vm + "/config", []string{"cores=2", "digest=" + strings.Repeat("a", 40)}},
		{"unknown option", 400, "delete: unknown option 'nothing'", put, vm + "/config", []string{"delete=nothing"}},
		{"balloon", 500, "balloon value too large (must be smaller than assigned memory)", put, vm + "/config", []string{"balloon=4096"}},
		{"boot", 500, "invalid bootorder: device 'scsi7' does not exist", put, vm + "/config", []string{"boot=order=scsi7"}},
		{"no ISO image", 500, "volume 'shared:iso/gone.iso' does not exist", put, vm + "/config", []string{"ide2=shared:iso/gone.iso,media=cdrom"}},
		{"ISO image as disk", 400, "explicit 'media=cdrom' is required for iso images", put, vm + "/config", []string{"ide2=shared:iso/a.iso"}},
		{"not running", 500, "VM 100 not running", post, vm + "/status/reset", nil},
		{"conflict", 400, "duplicate parameter (already defined in URI) with conflicting values!", post, vm + "/status/start", []string{"vmid=7"}},
		{"template twice", 500, "you can't convert a template to a template", post, "/nodes/pve1/qemu/9000/template", nil},
		{"VMID taken", 400, "vmid: VM 100 already exists", get, "/cluster/nextid", []string{"vmid=100"}},
		{"bad UPID", 400, "unable to parse worker upid", get, "/nodes/pve1/tasks/x/status", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := *c
			c.t = t
			c.refused(test.status, test.text, test.method, test.target, test.params...)
		})
	}
	c.fails("you can't start a vm if it's a template", post, "/nodes/pve1/qemu/9000/status/start")
	c.fails("No space left on device", post, clone, "newid=102", "full=1", "storage=thick")
	c.refused(500, "does not exist", get, "/nodes/pve1/qemu/102/config")
	c.fails("base volume 'shared:9000/base-9000-disk-0.qcow2' is still in use by linked cloned", del, "/nodes/pve1/qemu/9000")
}

// Disks of others with the VMID in their name survive, unless
// destroy-unreferenced-disks is set; disks in the configuration do not.
func TestForeignDisks(t *testing.T) {
	c := start(t, Options{})
	const clone, vm = "/nodes/pve1/qemu/9000/clone", "/nodes/pve1/qemu/100"
	left := func() string {
		volumes, err := c.server.Cluster.Volumes("shared")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(volumes, " ")
	}
	c.task(post, clone, "newid=100")
	if _, err := c.server.Cluster.AddDisk("100", "scsi1", "shared", 9999, 5); err != nil {
		t.Fatal(err)
	}
	c.ok(post, "/nodes/pve1/storage/shared/content", "vmid=100", "filename=vm-100-disk-7.qcow2", "size=1G", "format=qcow2")
	c.ok(put, vm+"/config", "scsi2=shared:3")
	c.ok(put, vm+"/config", "delete=scsi2")
	if unused := c.config("pve1", 100)["unused0"]; unused != "shared:100/vm-100-disk-1.qcow2" {
		t.Errorf("the detached disk is %v", unused)
	}
	c.task(del, vm, "purge=1")
	if got := left(); got != "shared:100/vm-100-disk-7.qcow2 shared:9000/base-9000-disk-0.qcow2 shared:9999/vm-9999-disk-0.qcow2" {
		t.Errorf("volumes: %s", got)
	}
	c.task(post, clone, "newid=100")
	c.task(del, vm, "destroy-unreferenced-disks=1")
	if got := left(); got != "shared:9000/base-9000-disk-0.qcow2 shared:9999/vm-9999-disk-0.qcow2" {
		t.Errorf("volumes: %s", got)
	}
}

// A disk that is given to another VM gets its name, and survives the deletion.
func TestReassignedDisk(t *testing.T) {
	c := start(t, Options{})
	for _, id := range []string{"100", "101"} {
		c.task(post, "/nodes/pve1/qemu/9000/clone", "newid="+id, "full=1")
	}
	c.ok(put, "/nodes/pve1/qemu/100/config", "scsi1=shared:3")
	c.refused(400, "both 'storage' and 'target-vmid' missing", post, "/nodes/pve1/qemu/100/move_disk", "disk=scsi1")
	c.refused(500, "Target disk key 'scsi0' is already in use for VM '101'", post, "/nodes/pve1/qemu/100/move_disk", "disk=scsi1", "target-vmid=101", "target-disk=scsi0")
	c.task(post, "/nodes/pve1/qemu/100/move_disk", "disk=scsi1", "target-vmid=101")
	c.task(del, "/nodes/pve1/qemu/100")
	if disk, _ := c.config("pve1", 101)["scsi1"].(string); !strings.HasPrefix(disk, "shared:101/vm-101-disk-1.qcow2") {
		t.Errorf("the disk is %q", disk)
	}
}

// A running VM keeps changes of its hardware pending until it stops. A CD can be
// changed, but a CD-ROM drive cannot be removed.
func TestPendingChanges(t *testing.T) {
	c := start(t, Options{})
	const vm = "/nodes/pve1/qemu/100"
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=100")
	c.ok(put, vm+"/config", "ide2=none,media=cdrom")
	c.task(post, vm+"/status/start")
	c.ok(put, vm+"/config", "cores=8", "description=now", "net1=virtio,bridge=vmbr0", "delete=ide2")
	current, _ := c.ok(get, vm+"/config", "current=1").(map[string]any)
	if current["cores"] != 2.0 || current["description"] != "now" || current["net1"] == nil || current["ide2"] == nil {
		t.Errorf("got %v", current)
	}
	if planned := c.config("pve1", 100); planned["cores"] != 8.0 || planned["ide2"] != nil {
		t.Errorf("got %v", planned)
	}
	pending, _ := c.ok(get, vm+"/pending").([]any)
	found := 0
	for _, entry := range pending {
		e, _ := entry.(map[string]any)
		if e["key"] == "cores" && e["pending"] == 8.0 && e["value"] == 2.0 || e["key"] == "ide2" && e["delete"] == 1.0 {
			found++
		}
	}
	if found != 2 {
		t.Errorf("pending: %v", pending)
	}
	c.task(post, vm+"/status/stop")
	if stopped, _ := c.ok(get, vm+"/config", "current=1").(map[string]any); stopped["cores"] != 8.0 || stopped["ide2"] != nil {
		t.Errorf("got %v", stopped)
	}
}

// CPUs and memory of a running VM increase if the option hotplug names them, and stay
// pending otherwise.
func TestIncreases(t *testing.T) {
	for name, tc := range map[string]struct {
		vm, change string
		option     string
		want       any
		problem    string
	}{
		"CPUs":             {vm: "hotplug=cpu vcpus=1", change: "vcpus=2", option: "vcpus", want: 2.0},
		"CPUsNoHotplug":    {vm: "vcpus=1", change: "vcpus=2", option: "vcpus", want: 1.0},
		"MoreThanAllCPUs":  {vm: "hotplug=cpu vcpus=1", change: "vcpus=3", option: "vcpus", want: 1.0, problem: "hotplug problem - you can't add more vcpus than maxcpus"},
		"Memory":           {vm: "hotplug=memory numa=1 memory=2048", change: "memory=3072", option: "memory", want: "3072"},
		"MemoryIsRounded":  {vm: "hotplug=memory numa=1 memory=2048", change: "memory=2049", option: "memory", want: "2560"},
		"MemoryNoHotplug":  {vm: "memory=2048", change: "memory=3072", option: "memory", want: "2048"},
		"MemoryOfTheGuest": {vm: "hotplug=memory numa=1 memory=2048", change: "memory=1024", option: "memory", want: "2048", problem: "hotplug problem - error unplug memory module"},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, Options{})
			const vm = "/nodes/pve1/qemu/100"
			c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=100")
			c.ok(put, vm+"/config", strings.Fields(tc.vm)...)
			c.task(post, vm+"/status/start")
			if tc.problem == "" {
				c.ok(put, vm+"/config", tc.change)
			} else {
				c.refused(400, tc.problem, put, vm+"/config", tc.change)
			}
			if current, _ := c.ok(get, vm+"/config", "current=1").(map[string]any); current[tc.option] != tc.want {
				t.Errorf("got %v", current)
			}
		})
	}
}

// Tasks hold the file lock of a VM, and locks in the configuration reject.
func TestLocks(t *testing.T) {
	timings := quick()
	timings["full-clone"], timings["lock"] = time.Hour, 50*time.Millisecond
	c := start(t, Options{Timings: timings})
	const clone, vm = "/nodes/pve1/qemu/9000/clone", "/nodes/pve1/qemu/100"
	upid := c.upid(post, clone, "newid=100", "full=1")
	c.eventually("the VM appears", func() bool { return c.do(get, vm+"/config").Status == http.StatusOK })
	if lock := c.config("pve1", 100)["lock"]; lock != "clone" {
		t.Errorf("the lock is %v", lock)
	}
	c.refused(500, "VM is locked (clone)", put, vm+"/config", "cores=2")
	c.fails("can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout", post, vm+"/status/start")
	c.refused(500, "can't lock file '/var/lock/qemu-server/lock-9000.conf' - got timeout", put, "/nodes/pve1/qemu/9000/config", "name=x")
	c.task(post, clone, "newid=101") // templates are locked for readers only
	c.ok(del, "/nodes/pve1/tasks/"+upid)
	if exit := c.wait(upid); exit != "clone failed: interrupted by signal" {
		t.Errorf("the task ended with %q", exit)
	}
	c.refused(500, "does not exist", get, vm+"/config")
	if err := c.server.Cluster.SetLock("101", "backup"); err != nil {
		t.Fatal(err)
	}
	c.fails("VM is locked (backup)", post, "/nodes/pve1/qemu/101/status/start")
	c.fails("VM is locked (backup)", del, "/nodes/pve1/qemu/101")
}

func TestShutdown(t *testing.T) {
	c := start(t, Options{})
	const vm = "/nodes/pve1/qemu/100"
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=100")
	c.task(post, vm+"/status/start")
	c.server.Inject(Fault{Method: post, Path: "nodes/*/qemu/*/status/shutdown", Work: true})
	c.fails("VM quit/powerdown failed - got timeout", post, vm+"/status/shutdown", "timeout=1")
	c.task(post, vm+"/status/shutdown", "timeout=1", "forceStop=1")
	c.task(post, vm+"/status/stop") // of a VM that is off
	status, _ := c.ok(get, vm+"/status/current").(map[string]any)
	if status["status"] != "stopped" || status["qmpstatus"] != "stopped" {
		t.Errorf("got %v", status)
	}
}

func TestUploads(t *testing.T) {
	c := start(t, Options{})
	const path = "/nodes/pve1/storage/local/upload"
	kinds := [][2]string{{"content", "iso"}}
	if res := c.upload(path, [][2]string{{"content", "snippets"}}, "a.yaml", []byte("x")); res.Status != 400 || res.Errors["content"] == "" {
		t.Errorf("got %+v", res)
	}
	if res := c.upload(path, kinds, "a.yaml", []byte("x")); res.Status != 400 || res.Errors["filename"] != "wrong file extension" {
		t.Errorf("got %+v", res)
	}
	if res := c.upload("/nodes/pve1/storage/local-lvm/upload", kinds, "a.iso", []byte("x")); !strings.Contains(res.Message, "can't upload to storage type 'lvmthin'") {
		t.Errorf("got %+v", res)
	}
	if res := c.upload(path, [][2]string{{"checksum-algorithm", "md5"}, {"content", "iso"}}, "a.iso", []byte("x")); res.Status != 500 || res.Reason != "upload failed" {
		t.Errorf("fields in another order: got %+v", res)
	}
	res := c.upload(path, append(kinds, [2]string{"checksum-algorithm", "sha256"}, [2]string{"checksum", "00"}), "a.iso", []byte("x"))
	if upid, _ := res.Data.(string); !strings.HasPrefix(c.wait(upid), "checksum mismatch") {
		t.Errorf("got %+v", res)
	}
	res = c.upload(path, kinds, "dir/a b.iso", []byte("x"))
	if upid, _ := res.Data.(string); c.wait(upid) != "OK" {
		t.Errorf("got %+v", res)
	}
	list, _ := c.ok(get, "/nodes/pve1/storage/local/content", "content=iso").([]any)
	res = c.upload(path, kinds, "empty.iso", nil)
	if upid, _ := res.Data.(string); c.wait(upid) != "OK" {
		t.Errorf("got %+v", res)
	}
	c.ok(put, "/nodes/pve1/qemu/9000/config", "ide0=local:iso/empty.iso,media=cdrom")
	if vms := c.server.Cluster.VMs(); len(vms[0].CDs) != 1 {
		t.Errorf("got %+v", vms)
	}
	if len(list) != 1 || !strings.Contains(list[0].(map[string]any)["volid"].(string), "local:iso/a_b.iso") {
		t.Errorf("got %v", list)
	}
	if other, _ := c.ok(get, "/nodes/pve2/storage/local/content").([]any); len(other) != 0 {
		t.Errorf("another node has the file in its local storage: %v", other)
	}
}

func TestNodes(t *testing.T) {
	c := start(t, Options{})
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=100", "target=pve2")
	c.task(post, "/nodes/pve2/qemu/100/status/start")
	c.ok(post, "/cluster/ha/resources", "sid=vm:100", "state=started")
	if err := c.server.SetOnline("pve2", false); err != nil {
		t.Fatal(err)
	}
	c.refused(595, "No route to host", get, "/nodes/pve2/status")
	if _, err := c.at(1).send(get, "/version"); err == nil {
		t.Error("a node that is offline answered")
	}
	c.eventually("the VM is recovered", func() bool {
		return c.do(get, "/nodes/pve1/qemu/100/config").Status == 200 || c.do(get, "/nodes/pve3/qemu/100/config").Status == 200
	})
	if err := c.server.SetOnline("pve3", false); err != nil {
		t.Fatal(err)
	}
	c.refused(500, "cluster not ready - no quorum?", post, "/nodes/pve1/qemu/9000/clone", "newid=101")
	status, _ := c.ok(get, "/cluster/status").([]any)
	if first, _ := status[0].(map[string]any); first["quorate"] != 0.0 || first["nodes"] != 3.0 {
		t.Errorf("got %v", status)
	}
}

func TestHARules(t *testing.T) {
	c := start(t, Options{})
	for _, id := range []string{"100", "101"} {
		c.task(post, "/nodes/pve1/qemu/9000/clone", "newid="+id, "target=pve2")
		c.refused(500, "cannot use unmanaged resource(s) vm:"+id, post, "/cluster/ha/rules", "rule=n"+id, "type=node-affinity", "nodes=pve1", "resources=vm:"+id)
		c.ok(post, "/cluster/ha/resources", "sid=vm:"+id, "state=ignored")
		c.ok(post, "/cluster/ha/rules", "rule=n"+id, "type=node-affinity", "nodes=pve2,pve3", "strict=1", "resources=vm:"+id)
	}
	c.refused(400, "Rule 'other' is invalid", post, "/cluster/ha/rules", "rule=other", "type=node-affinity", "nodes=pve1", "resources=vm:100")
	c.ok(post, "/cluster/ha/rules", "rule=apart", "type=resource-affinity", "affinity=negative", "resources=vm:100,vm:101")
	c.ok(put, "/cluster/ha/rules/n100", "type=node-affinity", "nodes=pve3", "resources=vm:100")
	c.refused(400, "Rule 'n101' is invalid", put, "/cluster/ha/rules/n101", "type=node-affinity", "nodes=pve3", "resources=vm:101")

	// A VM is recovered on a node of its rule only, and deleted with its resource.
	c.ok(put, "/cluster/ha/resources/vm:100", "state=started")
	c.eventually("the VM runs", func() bool { return c.state(100) == "started" })
	if err := c.server.SetOnline("pve2", false); err != nil {
		t.Fatal(err)
	}
	c.eventually("the VM is recovered", func() bool {
		return c.do(get, "/nodes/pve3/qemu/100/config").Status == 200 && c.state(100) == "started"
	})
	for id, delay := range map[float64]time.Duration{100: time.Hour, 101: time.Millisecond} {
		state := c.state(id)
		if err := c.server.SetTiming(cluster.TimeHA, delay); err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/cluster/ha/resources/vm:%.0f", id)
		c.ok("DELETE", path)
		if found := c.state(id); delay == time.Hour && found != state {
			t.Errorf("the list has the state %q instead of %q, and shows the removal late", found, state)
		}
		c.refused(500, "not HA managed", "DELETE", path)
	}
	c.eventually("the HA manager notices", func() bool { return c.state(101) == "" })
	rules, _ := c.ok(get, "/cluster/ha/rules", "resource=vm:100").([]any)
	if len(rules) > 0 {
		t.Errorf("got %v", rules)
	}
}

// state returns the state of a VM in the HA manager, as the list of resources has it.
func (c *client) state(vmid float64) string {
	list, _ := c.ok(get, "/cluster/resources", "type=vm").([]any)
	for _, entry := range list {
		if e, _ := entry.(map[string]any); e["vmid"] == vmid {
			state, _ := e["hastate"].(string)
			return state
		}
	}
	return ""
}

// The list of resources shows a new VM without name and status until its node
// reports it.
func TestResourcesAreLate(t *testing.T) {
	timings := quick()
	timings["status"] = time.Hour
	c := start(t, Options{Timings: timings})
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=100", "name=a")
	c.ok(put, "/nodes/pve1/qemu/100/config", "tags=mine")
	list, _ := c.ok(get, "/cluster/resources", "type=vm").([]any)
	for _, entry := range list {
		e, _ := entry.(map[string]any)
		if e["vmid"] == 100.0 && (e["status"] != "unknown" || e["name"] != nil || e["tags"] != "mine") {
			t.Errorf("got %v", e)
		}
	}
	if len(list) != 2 {
		t.Errorf("got %v", list)
	}
}

func TestFaults(t *testing.T) {
	c := start(t, Options{})
	const clone = "/nodes/pve1/qemu/9000/clone"
	c.server.Inject(Fault{Method: post, Path: "nodes/*/qemu/*/clone", Skip: 1, Status: 500, Reason: "busy"})
	c.task(post, clone, "newid=100")
	c.refused(500, "busy", post, clone, "newid=101")
	c.server.Inject(Fault{Path: "nodes/*/qemu/*/clone", After: true, Drop: true})
	if _, err := c.send(post, clone, "newid=102"); err == nil {
		t.Error("the response was not lost")
	}
	c.server.Inject(Fault{Path: "nodes/*/qemu/*/clone", Drop: true})
	if _, err := c.send(post, clone, "newid=103"); err == nil {
		t.Error("the response was not lost")
	}
	c.eventually("the request is performed", func() bool { return c.do(get, "/nodes/pve1/qemu/102/config").Status == 200 })
	c.refused(500, "does not exist", get, "/nodes/pve1/qemu/103/config")
	c.server.Inject(Fault{Path: "nodes/*/qemu/*/clone", Work: true, Reason: "no luck"})
	c.fails("no luck", post, clone, "newid=104")
	if got := c.server.Requests()["POST /nodes/{node}/qemu/{vmid}/clone"]; got != 5 {
		t.Errorf("%d requests were counted", got)
	}
}

// A mapped PCI device is used by one running VM of a node.
func TestPCIDevices(t *testing.T) {
	c := start(t, Options{Inventory: cluster.Inventory{
		Mappings: []cluster.MappingSpec{{ID: "gpu", Paths: map[string]string{"pve1": "0000:01:00.0"}}},
	}})
	for _, id := range []string{"100", "101"} {
		c.task(post, "/nodes/pve1/qemu/9000/clone", "newid="+id)
		c.ok(put, "/nodes/pve1/qemu/"+id+"/config", "hostpci0=mapping=gpu,pcie=1")
	}
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=102", "target=pve2")
	c.ok(put, "/nodes/pve2/qemu/102/config", "hostpci0=mapping=gpu")
	c.fails("no mapping of 'gpu' for node 'pve2'", post, "/nodes/pve2/qemu/102/status/start")
	c.task(post, "/nodes/pve1/qemu/100/status/start")
	c.fails("PCI device '0000:01:00.0' already in use by VMID '100'", post, "/nodes/pve1/qemu/101/status/start")
	c.task(post, "/nodes/pve1/qemu/100/status/stop")
	c.task(post, "/nodes/pve1/qemu/101/status/start")
}
