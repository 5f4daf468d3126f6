package ovirtsim

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSnapshots(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "")
	path := "/vms/" + id + "/snapshots"
	size := func() string {
		return e.must("GET", "/vms/"+id+"/diskattachments?follow=disk", "").str("disk_attachment/disk/actual_size")
	}
	before := size()
	status, made := e.send("POST", path, "<snapshot><description>first</description></snapshot>")
	if status != http.StatusAccepted || made.str("snapshot_status") != "locked" || made.str("persist_memorystate") != "false" {
		t.Fatalf("made: %d %s", status, text(made))
	}
	e.refuse("POST", path, "<snapshot><description>second</description></snapshot>", http.StatusConflict, "performing an operation on a Snapshot")
	e.refuse("DELETE", "/vms/"+id, "", http.StatusConflict, "performing an operation on a Snapshot")
	e.refuse("POST", "/vms/"+id+"/start", "<action/>", http.StatusConflict, "disks are locked")
	e.clock.Advance(time.Minute)
	if got := e.must("GET", path, "").all("snapshot"); len(got) != 2 || got[0].str("snapshot_type") != "active" || got[1].str("snapshot_status") != "ok" {
		t.Fatalf("listed: %d", len(got))
	}
	if size() == before {
		t.Error("a snapshot takes no room")
	}
	e.refuse("DELETE", path+"/"+id, "", http.StatusConflict, "active Snapshot")
	e.must("DELETE", path+"/"+made.id(), "")
	e.clock.Advance(time.Minute)
	if status, _ := e.send("GET", path+"/"+made.id(), ""); status != http.StatusNotFound || size() != before {
		t.Errorf("removed: %d, %s taken, %s before", status, size(), before)
	}
	if got := e.must("GET", path+"/"+id, "").str("description"); got != "Active VM" {
		t.Errorf("the active one is %q", got)
	}
}

func TestAnswerWhenTheWorkIsDone(t *testing.T) {
	e := newEngine(t)
	type answer struct {
		code int
		text string
	}
	got := make(chan answer, 1)
	go func() {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/vms", strings.NewReader(vmBody("a", "")))
		r.Header.Set("Authorization", "Bearer "+e.token)
		r.Header.Set("Expect", "201-created")
		response, err := e.client.Do(r)
		if err != nil {
			got <- answer{text: err.Error()}
			return
		}
		defer response.Body.Close() //nolint:errcheck // it was only read
		body, _ := parseElem(response.Body)
		got <- answer{response.StatusCode, body.str("status")}
	}()
	waitFor(t, func() bool { return len(e.VMs()) == 1 })
	select {
	case early := <-got:
		t.Fatalf("answered at once: %+v", early)
	default:
	}
	e.clock.Advance(time.Minute)
	if late := <-got; late != (answer{http.StatusCreated, vmDown}) {
		t.Errorf("got %+v", late)
	}
}

func TestWorkThatFails(t *testing.T) {
	e := newEngine(t)
	doom := func(method, path string) { e.Inject(Fault{Method: method, Path: path, Work: true}) }
	failedJobs := func() int { return len(e.must("GET", "/jobs?search=status%3Dfailed", "").kids) }

	doom("POST", "vms")
	id := e.must("POST", "/vms", vmBody("a", "")).id()
	e.clock.Advance(time.Second)
	if status, _ := e.send("GET", "/vms/"+id, ""); status != http.StatusNotFound || failedJobs() != 1 {
		t.Errorf("a VM whose disks failed: %d, %d jobs", status, failedJobs())
	}
	if got := e.must("GET", "/events?search=type%3D60", "").str("event/description"); got != "Failed to complete VM a creation." {
		t.Errorf("event %q", got)
	}
	id = e.vm("a", "")
	doom("POST", "vms/*/start")
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	e.clock.Advance(time.Minute)
	e.want(id, vmDown)
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	e.clock.Advance(time.Minute)
	for _, way := range []string{"shutdown", "stop"} {
		doom("POST", "vms/*/"+way)
		e.must("POST", "/vms/"+id+"/"+way, "<action/>")
		e.clock.Advance(5 * time.Minute)
		e.want(id, vmPoweringDown)
	}
	e.must("POST", "/vms/"+id+"/stop", "<action/>")
	e.clock.Advance(time.Minute)
	e.want(id, vmDown)
	disk := e.must("GET", "/vms/"+id+"/diskattachments", "").get("disk_attachment").id()
	doom("PUT", "disks/*")
	e.must("PUT", "/disks/"+disk, "<disk><provisioned_size>21474836480</provisioned_size></disk>")
	e.clock.Advance(time.Minute)
	if got := e.must("GET", "/disks/"+disk, ""); got.str("provisioned_size") != "10737418240" || got.str("status") != diskOK {
		t.Errorf("a growth that failed: %s", text(got))
	}
	doom("POST", "vms/*/snapshots")
	e.must("POST", "/vms/"+id+"/snapshots", "<snapshot><description>second</description></snapshot>")
	doom("POST", "templates")
	e.clock.Advance(time.Minute)
	e.must("POST", "/templates", "<template><name>t</name><vm id='"+id+"'/></template>")
	e.clock.Advance(time.Minute)
	if got := e.must("GET", "/templates?search=name%3Dt", ""); len(got.kids) != 0 || len(e.must("GET", "/vms/"+id+"/snapshots", "").kids) != 1 {
		t.Errorf("a template that failed: %s", text(got))
	}
	e.want(id, vmDown)
	doom("POST", "disks")
	domain := e.must("GET", "/storagedomains", "").get("storage_domain").id()
	broken := e.must("POST", "/disks", "<disk><format>cow</format><provisioned_size>1073741824</provisioned_size><storage_domains><storage_domain id='"+domain+"'/></storage_domains></disk>").id()
	e.clock.Advance(time.Minute)
	if got := e.must("GET", "/disks/"+broken, "").str("status"); got != diskIllegal || failedJobs() != 5 {
		t.Errorf("a disk that failed is %s, %d jobs", got, failedJobs())
	}
	e.clock.Advance(20 * time.Minute)
	e.login()
	if got := len(e.must("GET", "/jobs?search=status%3Dfinished", "").kids); got != 0 || failedJobs() != 5 {
		t.Errorf("after 20 minutes: %d finished, %d failed", got, failedJobs())
	}
	e.clock.Advance(25 * time.Minute)
	e.must("GET", "/vms", "")
	e.clock.Advance(25 * time.Minute)
	if failedJobs() != 0 {
		t.Errorf("after 70 minutes: %d failed", failedJobs())
	}
}

func TestOldEventsGo(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.TokenLifetime, o.TokenIdle = 1000*time.Hour, 1000*time.Hour })
	e.vm("a", "")
	last := e.must("GET", "/events?max=1", "").get("event").id()
	e.clock.Advance(31 * 24 * time.Hour)
	e.vm("b", "")
	if got, _ := e.send("GET", "/events/"+last, ""); got != http.StatusNotFound {
		t.Errorf("an old event: %d", got)
	}
	for _, got := range e.must("GET", "/events?from="+last, "").all("event") {
		if !strings.Contains(got.str("description"), "VM b ") {
			t.Errorf("after %s: %s", last, text(got))
		}
	}
}

func TestRunOnce(t *testing.T) {
	e, guests := withBodies(t)
	id := e.vm("a", "")
	e.must("POST", "/vms/"+id+"/start", "<action><use_cloud_init>true</use_cloud_init><vm><memory>2147483648</memory><memory_policy><guaranteed>1073741824</guaranteed></memory_policy>"+
		"<initialization><custom_script>once: 1</custom_script></initialization><payloads><payload><type>floppy</type><volume_id>l</volume_id>"+
		"<files><file><name>f</name><content>c</content></file></files></payload></payloads></vm></action>")
	<-guests.done
	if got := guests.last; got.MemoryMiB != 2048 || string(got.Payload["f"]) != "c" || got.PayloadLabel != "l" ||
		!strings.HasSuffix(string(got.Drive["openstack/latest/user_data"]), "once: 1") {
		t.Errorf("got %+v", got)
	}
	e.clock.Advance(time.Minute)
	if now := e.must("GET", "/vms/"+id, ""); now.str("memory") != "1073741824" || now.str("run_once") != "true" || now.get("initialization") != nil {
		t.Errorf("it is kept: %s", text(now))
	}
	e.must("POST", "/vms/"+id+"/stop", "<action/>")
	<-guests.done
	waitFor(t, func() bool { return e.status(id) == vmDown })
	e.must("POST", "/vms/"+id+"/start", "<action><use_ignition>true</use_ignition></action>")
	<-guests.done
	if got := guests.last; got.MemoryMiB != 1024 || len(got.Payload) != 0 || !strings.Contains(string(got.Drive["openstack/latest/user_data"]), `"ignition"`) {
		t.Errorf("the next run: %+v", got)
	}
}

func TestPoolOfAddresses(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Inventory.MACs = 2 })
	id := e.vm("a", "")
	add := func(name string) (int, *elem) {
		return e.send("POST", "/vms/"+id+"/nics", "<nic><name>"+name+"</name></nic>")
	}
	_, one := add("nic1")
	_, two := add("nic2")
	if one.str("mac/address") == two.str("mac/address") {
		t.Fatal("two cards have one address")
	}
	e.refuse("POST", "/vms/"+id+"/nics", "<nic><name>nic3</name></nic>", http.StatusConflict, "Not enough MAC addresses left in MAC Address Pool")
	e.must("POST", "/vms/"+id+"/nics", "<nic><name>own</name><mac><address>02:00:00:00:00:01</address></mac></nic>")
	e.must("DELETE", "/vms/"+id+"/nics/"+one.id(), "")
	if status, three := add("nic3"); status != http.StatusCreated || three.str("mac/address") != one.str("mac/address") {
		t.Errorf("after one was given back: %d %s", status, text(three))
	}
	e.must("DELETE", "/vms/"+id, "")
	id = e.vm("b", "")
	if status, _ := add("nic1"); status != http.StatusCreated {
		t.Errorf("after the VM has gone: %d", status)
	}
	if got := e.must("GET", "/macpools", "").str("mac_pool/ranges/range/to"); got != "56:6f:1a:00:00:01" {
		t.Errorf("the pool ends with %s", got)
	}
}

func TestPermits(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Users = []UserSpec{{Name: "reader@internal", Password: "r", Permits: []string{login}}, {Name: "maker@internal", Password: "m", Permits: []string{login, "create_vm", "run_vm", "create_disk", "attach_disk_profile"}}}
	})
	id := e.vm("a", "")
	as := func(name, password string) {
		t.Helper()
		status, answer := e.signIn(name, password)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %v", name, status, answer)
		}
		e.token = answer["access_token"]
	}
	const words = "[User is not authorized to perform this action.]"
	as("reader@internal", "r")
	e.must("GET", "/vms", "")
	e.refuse("POST", "/vms", vmBody("b", ""), http.StatusForbidden, words)
	e.refuse("POST", "/vms/"+id+"/start", "<action/>", http.StatusForbidden, words)
	as("maker@internal", "m")
	e.must("POST", "/vms", vmBody("b", ""))
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	e.refuse("POST", "/vms", vmBody("c", "<custom_properties><custom_property><name>a</name><value>b</value></custom_property></custom_properties>"), http.StatusForbidden, words)
	e.refuse("POST", "/vms/"+id+"/stop", "<action/>", http.StatusForbidden, words)
	e.refuse("POST", "/tags", "<tag><name>t</name></tag>", http.StatusForbidden, words)
	if err := e.SetPermits("maker@internal", []string{login, "stop_vm"}); err != nil {
		t.Fatal(err)
	}
	e.must("POST", "/vms/"+id+"/stop", "<action/>")
	e.refuse("POST", "/vms", vmBody("c", ""), http.StatusForbidden, words)
	if err := e.SetPassword("maker@internal", "new"); err != nil {
		t.Fatal(err)
	}
	e.must("GET", "/vms", "")
	if status, _ := e.signIn("maker@internal", "m"); status != http.StatusBadRequest {
		t.Errorf("the old password: %d", status)
	}
	as("maker@internal", "new")
	if got := len(e.must("GET", "/users", "").kids); got != 3 {
		t.Errorf("%d users", got)
	}
	if err := e.SetPermits(DefaultUsername, nil); err == nil {
		t.Error("the administrator's permits were taken")
	}
}

// TestEveryWriteHasAPermit keeps the table of permits in step with the routes.
func TestEveryWriteHasAPermit(t *testing.T) {
	e := newEngine(t)
	known := map[string]bool{}
	for _, r := range e.routes {
		name := r.method + " " + r.path
		known[name] = true
		administrative := strings.Contains(r.path, "permissions") || r.path == "roles" || r.path == "users" || strings.HasSuffix(r.path, "autopincpuandnumanodes") || strings.HasSuffix(r.path, "reduce")
		if r.method != http.MethodGet && r.method != http.MethodOptions && permits[name] == "" && !administrative {
			t.Errorf("%s needs no permit", name)
		}
	}
	for name := range permits {
		if !known[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

func TestConcurrentChangesOfAnAffinityGroup(t *testing.T) {
	e := newEngine(t)
	if err := e.SetTiming(TimeGroupEdit, time.Second); err != nil {
		t.Fatal(err)
	}
	cluster := e.must("GET", "/clusters", "").get("cluster").id()
	group := e.must("POST", "/clusters/"+cluster+"/affinitygroups", "<affinity_group><name>g</name></affinity_group>").id()
	path := "/clusters/" + cluster + "/affinitygroups/" + group
	statuses := make(chan int, 8)
	var all sync.WaitGroup
	var ids []string
	for i := range cap(statuses) {
		ids = append(ids, e.vm(fmt.Sprintf("vm-%d", i), ""))
	}
	for _, id := range ids {
		all.Go(func() {
			status, _ := e.Do("POST", path+"/vms", "<vm id='"+id+"'/>")
			statuses <- status
		})
	}
	all.Wait()
	close(statuses)
	count := map[int]int{}
	for status := range statuses {
		count[status]++
	}
	if count[http.StatusConflict] != 7 {
		t.Fatalf("answers: %v", count)
	}
	e.refuse("PUT", path, "<affinity_group><description>d</description></affinity_group>", http.StatusConflict, "Related operation is currently in progress")
	e.clock.Advance(time.Second)
	e.must("PUT", path, "<affinity_group><description>d</description></affinity_group>")
	if got := len(e.must("GET", path+"?follow=vms", "").all("vms/vm")); got != 1 {
		t.Errorf("%d are in the group", got)
	}
}

func TestInventory(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Inventory = Inventory{
			DataCenters: []string{"east"},
			Clusters:    []ClusterSpec{{Name: "east-2", DataCenter: "east"}, {Name: "second"}},
			Hosts:       []HostSpec{{Name: "h1", Cores: 8, MemoryMiB: 8192}, {Name: "e2", Cores: 8, MemoryMiB: 8192, Cluster: "east-2"}},
			Domains:     []DomainSpec{{Name: "d1", SizeGiB: 100}, {Name: "d2", SizeGiB: 100}, {Name: "e1", SizeGiB: 100, DataCenter: "east"}},
			Networks:    []string{"blue", "east/green"},
			Profiles:    []ProfileSpec{{Name: "blue-2", Network: "blue"}},
			Templates: []TemplateSpec{
				{Name: templateName, DiskGiB: 10, Domains: []string{"d1", "d2"}, DataDisksGiB: []int64{5}, NICs: []string{"blue-2"}},
				{Name: templateName, DiskGiB: 20},
				{Name: templateName, DiskGiB: 10, Cluster: "east-2", NICs: []string{"green"}},
			},
			VMs: []VMSpec{{Name: "foreign", Template: templateName, Tags: []string{"theirs"}, Up: true}, {Name: "foreign", Cluster: "east", Template: ""}},
		}
	})
	e.clock.Advance(time.Minute)
	for path, want := range map[string]string{
		"/vms?search=name%3Dforeign": "foreign foreign",
		"/vms?search=tag%3Dtheirs":   "foreign",
		"/vms?search=status%3Dup":    "foreign",
		"/hosts?search=status%3Dup":  "h1 e2 east-host1",
		"/storagedomains":            "d1 d2 e1 east-data1",
		"/networks":                  "ovirtmgmt ovirtmgmt blue green",
		"/vnicprofiles":              "ovirtmgmt ovirtmgmt blue green blue-2",
		"/clusters":                  "Default east east-2 second",
		"/templates?search=name%3Dnode%20sortby%20name":              "node node node",
		"/templates?search=name%3Dnode%20and%20cluster%3Deast-2":     "node",
		"/templates?search=name%3Dnode%20and%20datacenter%3DDefault": "node node",
		"/hosts?search=cluster%3Deast-2":                             "e2",
		"/clusters?search=datacenter%3Deast":                         "east east-2",
		"/storagedomains?search=datacenter%3Deast":                   "e1 east-data1",
		"/networks?search=datacenter%3Deast":                         "ovirtmgmt green",
	} {
		var names []string
		for _, item := range e.must("GET", path, "").kids {
			names = append(names, item.str("name"))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	here, there := "", ""
	for _, p := range e.must("GET", "/vnicprofiles?follow=network.data_center", "").kids {
		switch {
		case p.str("name") == "blue":
			here = p.id()
		case p.str("name") == "green":
			there = p.id()
			if got := p.str("network/data_center/name"); got != "east" {
				t.Errorf("green is of %q", got)
			}
		}
	}
	id := e.vm("a", "")
	e.must("POST", "/vms/"+id+"/nics", "<nic><name>nic5</name><vnic_profile id='"+here+"'/></nic>")
	e.refuse("POST", "/vms/"+id+"/nics", "<nic><name>nic6</name><vnic_profile id='"+there+"'/></nic>", http.StatusConflict, "does not exist in the cluster")
	host := e.must("GET", "/hosts?search=name%3De2", "").get("host").id()
	e.refuse("PUT", "/vms/"+id, "<vm><placement_policy><affinity>pinned</affinity><hosts><host id='"+host+"'/></hosts></placement_policy></vm>",
		http.StatusConflict, "Dedicated Host Cluster is not identical to VM Cluster")
	for _, wrong := range []Inventory{
		{Hosts: []HostSpec{{Name: "h", Cluster: "none"}}},
		{Profiles: []ProfileSpec{{Name: "p", Network: "none"}}},
		{Templates: []TemplateSpec{{Name: "t", DiskGiB: 1, Domains: []string{"none"}}}},
		{Templates: []TemplateSpec{{Name: "t", NICs: []string{"none"}}}},
		{VMs: []VMSpec{{Name: "v", Template: "none"}}},
	} {
		if _, err := Start(t.Context(), Options{Inventory: wrong}); err == nil || !strings.Contains(err.Error(), "none") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestFollow(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "")
	e.must("POST", "/vms/"+id+"/nics", "<nic><name>nic1</name><vnic_profile id='"+e.must("GET", "/vnicprofiles", "").get("vnic_profile").id()+"'/></nic>")
	e.must("POST", "/tags", "<tag><name>mine</name></tag>")
	e.must("POST", "/vms/"+id+"/tags", "<tag><name>mine</name></tag>")
	cluster := e.must("GET", "/clusters", "").get("cluster").id()
	group := e.must("POST", "/clusters/"+cluster+"/affinitygroups", "<affinity_group><name>g</name><vms><vm id='"+id+"'/></vms></affinity_group>")
	e.up(id)
	label := e.must("POST", "/affinitylabels", "<affinity_label><name>l</name></affinity_label>").id()
	e.must("POST", "/vms/"+id+"/affinitylabels", "<affinity_label id='"+label+"'/>")
	if err := e.SetGuestAddresses(id, []GuestNIC{{Name: "eth0", MAC: "56:6f:1a:00:00:00", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}}}); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"/vms", "/vms/" + id} {
		got := e.must("GET", list+"?follow=nics.vnic_profile.network,disk_attachments.disk.storage_domains,reported_devices,tags,affinity_labels,snapshots,statistics,host,cluster.affinity_groups", "")
		if got.name == "vms" {
			got = got.get("vm")
		}
		for path, want := range map[string]string{
			"nics/nic/name": "nic1", "nics/nic/vnic_profile/network/name": "ovirtmgmt",
			"disk_attachments/disk_attachment/disk/provisioned_size": "10737418240",
			"reported_devices/reported_device/ips/ip/address":        "10.0.0.5", "tags/tag/name": "mine",
			"affinity_labels/affinity_label/name": "l", "snapshots/snapshot/description": "Active VM", "statistics/statistic/name": "memory.installed",
			"host/memory": "68719476736", "cluster/affinity_groups/affinity_group/name": "g",
		} {
			if found := got.str(path); found != want {
				t.Errorf("%s: %s is %q, want %q", list, path, found, want)
			}
		}
		if got.get("disk_attachments/disk_attachment/disk/storage_domains/storage_domain").id() == "" {
			t.Errorf("%s: no storage domain", list)
		}
	}
	if got := e.must("GET", "/clusters/"+cluster+"/affinitygroups?follow=vms", "").str("affinity_group/vms/vm/name"); got != "a" {
		t.Errorf("the group's VM is %q", got)
	}
	if got := e.must("GET", "/clusters/"+cluster+"/affinitygroups/"+group.id()+"/vms", ""); len(got.kids) != 1 {
		t.Errorf("the group has %d", len(got.kids))
	}
	if got := e.must("GET", "/hosts?follow=nics,statistics", ""); got.str("host/nics/host_nic/name")+got.str("host/host_nics/host_nic/name") != "eth0" {
		t.Errorf("the host's cards: %s", text(got))
	}
	for path, want := range map[string]int{"/nics?max=0": 0, "/diskattachments": 1, "/tags?max=0": 0} {
		if got := len(e.must("GET", "/vms/"+id+path, "").kids); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
}

func TestThinAndCloneTakeRoom(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Inventory.Domains = []DomainSpec{{Name: "d", SizeGiB: 15}}
		o.Inventory.Templates = []TemplateSpec{{Name: templateName, DiskGiB: 10}}
	})
	room := func() (n int64) {
		if err := e.must("GET", "/storagedomains", "").get("storage_domain").setInt("available", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := room()
	e.vm("thin", "")
	if took := before - room(); took != emptyCow {
		t.Errorf("a thin VM took %d", took)
	}
	before = room()
	e.must("POST", "/vms?clone=true", vmBody("clone", ""))
	if took := before - room(); took != gib {
		t.Errorf("a clone took %d", took)
	}
	disk := e.must("GET", "/templates?search=name%3Dnode&follow=disk_attachments", "").get("template/disk_attachments/disk_attachment").id()
	raw := "<disk_attachments><disk_attachment><disk id='" + disk + "'><format>raw</format><sparse>false</sparse></disk></disk_attachment></disk_attachments>"
	e.refuse("POST", "/vms?clone=true", vmBody("raw", raw), http.StatusConflict, "Low disk space")
	if took := before - room(); took != gib {
		t.Errorf("a VM that was refused took %d", took-gib)
	}
	if status, _, _ := e.raw("GET", "/vms?search=name%3Draw", ""); status != http.StatusOK {
		t.Error(status)
	}
}

func TestFaultsOfARequest(t *testing.T) {
	e := newEngine(t)
	e.client.Timeout = 2 * time.Second
	e.Inject(Fault{Method: "POST", Path: "vms", Hang: true})
	if status, _, text := e.raw("POST", "/vms", vmBody("a", "")); status != 0 || !strings.Contains(text, "exceeded") {
		t.Fatalf("a request that hangs: %d %s", status, text)
	}
	if len(e.VMs()) != 0 {
		t.Fatal("it took place")
	}
	e.Inject(Fault{Method: "POST", Path: "vms", Hang: true, After: true})
	if status, _, _ := e.raw("POST", "/vms", vmBody("a", "")); status != 0 || len(e.VMs()) != 1 {
		t.Fatalf("an answer that hangs: %d, %d VMs", status, len(e.VMs()))
	}
	e.client.Timeout = 30 * time.Second
	e.Inject(Fault{Method: "GET", Path: "vms", Status: http.StatusUnauthorized})
	if status, _, body := e.raw("GET", "/vms", ""); status != http.StatusUnauthorized || !strings.HasPrefix(body, "<html>") {
		t.Errorf("a fault without words: %d %s", status, body)
	}
}

func TestFaultsOfSessions(t *testing.T) {
	e := newEngine(t)
	e.ResetRequests()
	e.Inject(Fault{Status: http.StatusTeapot})
	e.login()
	e.Inject(Fault{Path: "sso/oauth/token", Drop: true, After: true})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(e.URL, apiPath)+tokenPath,
		strings.NewReader("grant_type=password&username="+DefaultUsername+"&password="+DefaultPassword))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	before := e.Tokens()
	if response, err := e.client.Do(r); err == nil {
		_ = response.Body.Close()
		t.Errorf("answered %s", response.Status)
	}
	if got := e.Tokens(); got <= before {
		t.Errorf("%d sessions, %d before", got, before)
	}
	if got := e.Requests()["POST /sso/oauth/token"]; got < 2 {
		t.Errorf("counted %d logins", got)
	}
	if status, _, _ := e.raw("GET", "/vms", ""); status != http.StatusTeapot {
		t.Errorf("the fault of the API is used up: %d", status)
	}
}

func TestEveryOtherRequestFails(t *testing.T) {
	var seen []string
	e := newEngine(t, func(o *Options) { o.OnRequest = func(method, path string) { seen = append(seen, method+" "+path) } })
	e.Inject(Fault{Every: 2, Times: 2, Status: http.StatusServiceUnavailable})
	var got []int
	for range 6 {
		status, _, _ := e.raw("GET", "/vms", "")
		got = append(got, status)
	}
	if text := fmt.Sprint(got); text != "[200 503 200 503 200 200]" {
		t.Error(text)
	}
	if len(seen) != 6 || seen[0] != "GET /vms" {
		t.Errorf("seen: %v", seen)
	}
}

func TestConnectionsAreCounted(t *testing.T) {
	e := newEngine(t)
	e.must("GET", "/vms", "")
	if got := e.Connections(); got != (Connections{Made: 1, Open: 1}) {
		t.Errorf("one client: %+v", got)
	}
	e.client.CloseIdleConnections()
	waitFor(t, func() bool { return e.Connections().Open == 0 })
	e.must("GET", "/vms", "")
	if got := e.Connections(); got != (Connections{Made: 2, Open: 1}) {
		t.Errorf("the same again: %+v", got)
	}
	e.ResetRequests()
	if got := e.Connections(); got != (Connections{Open: 1}) {
		t.Errorf("after a reset: %+v", got)
	}
}

// TestListIsFresh changes VMs in all ways and reads the list after each change,
// because the server caches the list.
func TestListIsFresh(t *testing.T) {
	e := newEngine(t)
	last := ""
	changed := func(what string) {
		t.Helper()
		now := text(e.must("GET", "/vms?follow=nics,reported_devices,tags", ""))
		if now == last {
			t.Errorf("%s does not show", what)
		}
		last = now
		if again := text(e.must("GET", "/vms?follow=nics,reported_devices,tags", "")); again != now {
			t.Errorf("%s: two answers differ", what)
		}
	}
	changed("the beginning")
	id := e.must("POST", "/vms", vmBody("a", "")).id()
	changed("a new VM")
	e.clock.Advance(time.Minute)
	changed("the end of its making")
	e.must("PUT", "/vms/"+id, "<vm><comment>é &lt; &amp;</comment></vm>")
	changed("a comment")
	e.must("POST", "/vms/"+id+"/nics", "<nic><name>nic1</name></nic>")
	changed("a card")
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	changed("a start")
	e.clock.Advance(time.Minute)
	changed("the end of the start")
	if err := e.SetGuestAddresses(id, []GuestNIC{{Name: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	changed("an address")
	if err := e.SetHostStatus("host1", hostDown); err != nil {
		t.Fatal(err)
	}
	if err := e.SetHostStatus("host2", hostDown); err != nil {
		t.Fatal(err)
	}
	changed("the loss of all hosts")
	if got := e.must("GET", "/vms", "").str("vm/comment"); got != "é < &" {
		t.Errorf("the comment is %q", got)
	}
}

// TestHardware checks the fields of a request body that a VM keeps and returns.
func TestHardware(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "<cpu><cpu_tune><vcpu_pins><vcpu_pin><vcpu>0</vcpu><cpu_set>1</cpu_set></vcpu_pin></vcpu_pins></cpu_tune></cpu>"+
		"<instance_type><name>Medium</name></instance_type><cpu_pinning_policy>dedicated</cpu_pinning_policy><custom_cpu_model>Cascadelake-Server</custom_cpu_model>")
	got := e.must("GET", "/vms/"+id+"?follow=instance_type,watchdogs,host_devices,sessions,applications", "")
	for path, want := range map[string]string{
		"cpu/cpu_tune/vcpu_pins/vcpu_pin/cpu_set": "1", "cpu/topology/sockets": "2", "memory": "4294967296", "instance_type/name": "Medium",
		"cpu_pinning_policy": "dedicated", "custom_cpu_model": "Cascadelake-Server",
	} {
		if found := got.str(path); found != want {
			t.Errorf("%s is %q, want %q", path, found, want)
		}
	}
	node := "<vm_numa_node><index>0</index><memory>1024</memory><cpu><cores><core><index>0</index></core></cores></cpu></vm_numa_node>"
	e.must("POST", "/vms/"+id+"/numanodes", node)
	e.refuse("POST", "/vms/"+id+"/numanodes", node, http.StatusConflict, "index is already used")
	if list := e.must("GET", "/vms/"+id+"/numanodes", ""); list.str("vm_numa_node/memory") != "1024" {
		t.Errorf("NUMA nodes: %s", text(list))
	}
	e.refuse("POST", "/vms", vmBody("b", "<instance_type><name>Vast</name></instance_type>"), http.StatusNotFound, "InstanceType")
	e.refuse("PUT", "/vms/"+id, "<vm><high_availability><enabled>true</enabled></high_availability><placement_policy><affinity>pinned</affinity></placement_policy></vm>",
		http.StatusConflict, "cannot be pinned")
}

// TestDevicesOfHosts passes devices through under the rules of the engine.
func TestDevicesOfHosts(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Inventory.Hosts = []HostSpec{{Name: "a", Cores: 8, MemoryMiB: 32 << 10, Devices: []DeviceSpec{
			{Name: "pci_0000_03_00_0", VendorID: 0x10de, DeviceID: 0x1eb8, IOMMUGroup: 20},
			{Name: "pci_0000_03_00_1", VendorID: 0x10de, DeviceID: 0x10f0, IOMMUGroup: 20},
		}}, {Name: "b", Cores: 8, MemoryMiB: 32 << 10}}
	})
	host := e.must("GET", "/hosts?search=name%3Da", "").get("host").id()
	other := e.must("GET", "/hosts?search=name%3Db", "").get("host").id()
	listed := e.must("GET", "/hosts/"+host+"/devices", "").get("host_device")
	if listed.id() != fmt.Sprintf("%x", "pci_0000_03_00_0") {
		t.Errorf("the device has the ID %s", listed.id())
	}
	if got := listed.get("vendor").id() + listed.get("product").id(); got != "0x10de0x1eb8" {
		t.Errorf("vendor and product are %s", got)
	}
	body := "<host_device><name>pci_0000_03_00_0</name></host_device>"
	pin := func(hosts ...string) string {
		var text strings.Builder
		for _, id := range hosts {
			text.WriteString(`<host id="` + id + `"/>`)
		}
		return "<placement_policy><affinity>pinned</affinity><hosts>" + text.String() + "</hosts></placement_policy>"
	}
	for name, policy := range map[string]string{"free": "", "both": pin(host, other), "wrong": pin(other)} {
		id := e.vm(name, policy)
		e.refuse("POST", "/vms/"+id+"/hostdevices", body, http.StatusConflict, map[string]string{
			"free": "not pinned", "both": "multiple hosts", "wrong": "not found on the host",
		}[name])
	}
	first, second := e.vm("first", pin(host)), e.vm("second", pin(host))
	for _, id := range []string{first, second} {
		e.must("POST", "/vms/"+id+"/hostdevices", body)
	}
	placeholders := map[string]string{}
	for _, d := range e.must("GET", "/vms/"+first+"/hostdevices", "").all("host_device") {
		placeholders[d.str("name")] = d.str("placeholder")
	}
	if placeholders["pci_0000_03_00_0"] != "false" || placeholders["pci_0000_03_00_1"] != "true" {
		t.Errorf("the devices of the VM are %v", placeholders)
	}
	e.must("POST", "/vms/"+first+"/start", "<action/>")
	if user := e.must("GET", "/hosts/"+host+"/devices", "").get("host_device/vm").id(); user != first {
		t.Errorf("%s has the device", user)
	}
	e.refuse("POST", "/vms/"+second+"/start", "<action/>", http.StatusConflict, "some of the required host devices are unavailable")
	e.refuse("POST", "/vms/"+first+"/hostdevices", body, http.StatusConflict, "not down")
	e.must("PUT", "/vms/"+second, "<vm>"+pin(other)+"</vm>")
	if left := e.must("GET", "/vms/"+second+"/hostdevices", "").all("host_device"); len(left) > 0 {
		t.Errorf("a VM on another host has %d devices", len(left))
	}
	e.must("POST", "/vms/"+second+"/start", "<action/>")
}
