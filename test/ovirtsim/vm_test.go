package ovirtsim

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestLifeOfAVM(t *testing.T) {
	e := newEngine(t)
	status, made := e.send("POST", "/vms", vmBody("a", ""))
	if status != http.StatusAccepted || made.str("status") != vmImageLocked || made.str("creation_status") != "pending" {
		t.Fatalf("create: %d %s", status, text(made))
	}
	path := "/vms/" + made.id()
	e.refuse("POST", path+"/start", "<action/>", http.StatusConflict, "Cannot run VM: VM is locked.")
	e.refuse("POST", path+"/stop", "<action/>", http.StatusConflict, "VM is not running")
	e.refuse("POST", path+"/nics", "<nic><name>nic1</name></nic>", http.StatusConflict, "VM is locked")
	e.refuse("DELETE", path, "", http.StatusConflict, "VM is locked")
	e.clock.Advance(time.Second)
	e.want(made.id(), vmDown)

	e.must("POST", path+"/start", "<action/>")
	e.want(made.id(), vmWaitForLaunch)
	e.refuse("POST", path+"/start", "<action/>", http.StatusConflict, "Cannot run VM. VM is running.")
	e.clock.Advance(DefaultTimings()[TimeWaitForLaunch])
	e.want(made.id(), vmPoweringUp)
	e.clock.Advance(DefaultTimings()[TimePoweringUp])
	e.want(made.id(), vmUp)
	e.refuse("DELETE", path, "", http.StatusConflict, "Cannot remove VM. VM is running.")

	e.must("POST", path+"/shutdown", "<action/>")
	e.want(made.id(), vmPoweringDown)
	e.clock.Advance(time.Second)
	e.want(made.id(), vmDown)
	if answer := e.must("POST", path+"/stop", "<action/>"); answer.str("status") != "complete" {
		t.Fatalf("stopping a VM that is down: %s", text(answer))
	}
	disk := e.must("GET", path+"/diskattachments", "").get("disk_attachment").id()
	e.must("DELETE", path, "")
	if status, _, body := e.raw("GET", path, ""); status != http.StatusNotFound || body != "" {
		t.Fatalf("a removed VM: %d %q", status, body)
	}
	if status := e.must("GET", "/disks/"+disk, "").str("status"); status != diskLocked {
		t.Fatalf("its disk is %s", status)
	}
	e.clock.Advance(time.Second)
	if status, _ := e.send("GET", "/disks/"+disk, ""); status != http.StatusNotFound {
		t.Fatalf("its disk: %d", status)
	}
}

func TestVMWithoutDiskIsDownAtOnceAndDoesNotStart(t *testing.T) {
	e := newEngine(t)
	status, made := e.send("POST", "/vms", "<vm><name>a</name><cluster><name>Default</name></cluster><template id='"+BlankTemplateID+"'/></vm>")
	if status != http.StatusCreated || made.str("status") != vmDown {
		t.Fatalf("create: %d %s", status, text(made))
	}
	e.refuse("POST", "/vms/"+made.id()+"/start", "<action/>", http.StatusConflict, "without at least one bootable disk")
}

func TestNamesAreUniqueInADataCenter(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Inventory.DataCenters = []string{"other"} })
	e.vm("a", "")
	e.refuse("POST", "/vms", vmBody("a", ""), http.StatusConflict, "The VM name is already in use")
	e.must("POST", "/vms", "<vm><name>a</name><cluster><name>other</name></cluster><template id='"+BlankTemplateID+"'/></vm>")
	if found := e.must("GET", "/vms?search=name%3Da", ""); len(found.kids) != 2 {
		t.Fatalf("found %s", text(found))
	}
	e.refuse("POST", "/vms", vmBody(strings.Repeat("x", 65), ""), http.StatusBadRequest, "too long")
	e.refuse("POST", "/vms", vmBody("a b", ""), http.StatusBadRequest, "special characters")
}

func TestDeleteProtection(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "<delete_protected>true</delete_protected>")
	e.refuse("DELETE", "/vms/"+id, "", http.StatusConflict, "Delete protection is enabled")
	e.must("PUT", "/vms/"+id, "<vm><delete_protected>false</delete_protected></vm>")
	e.must("DELETE", "/vms/"+id, "")
}

func TestThinVMHoldsItsTemplate(t *testing.T) {
	e := newEngine(t)
	template := e.must("GET", "/templates?search=name%3D"+templateName, "").get("template").id()
	thin := e.vm("thin", "")
	e.refuse("DELETE", "/templates/"+template, "", http.StatusConflict, "being used by the following VMs: thin")
	e.refuse("DELETE", "/vms/"+thin+"?detach_only=true", "", http.StatusConflict, "VM is based from template")

	clone := e.must("POST", "/vms?clone=true", vmBody("clone", ""))
	if clone.get("template").id() != BlankTemplateID || clone.get("original_template").id() != template {
		t.Fatalf("the clone: %s", text(clone))
	}
	e.clock.Advance(time.Minute)
	disk := e.must("GET", "/vms/"+clone.id()+"?follow=disk_attachments.disk", "").get("disk_attachments/disk_attachment/disk")
	if disk.str("provisioned_size") != "10737418240" || disk.str("actual_size") != "1073741824" {
		t.Fatalf("the clone's disk: %s", text(disk))
	}
	e.must("DELETE", "/vms/"+thin, "")
	e.must("DELETE", "/templates/"+template, "")
	e.must("DELETE", "/vms/"+clone.id()+"?detach_only=true", "")
	e.clock.Advance(time.Minute)
	e.must("GET", "/disks/"+disk.id(), "")
}

func TestHardwareOfARunningVMChangesWithItsNextStart(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "")
	e.up(id)
	// The memory that is added is no multiple of a block.
	changed := e.must("PUT", "/vms/"+id, "<vm><comment>c</comment><memory>2148532224</memory></vm>")
	if changed.str("comment") != "c" || changed.str("memory") != "1073741824" || changed.str("next_run_configuration_exists") != "true" {
		t.Fatalf("got %s", text(changed))
	}
	e.must("POST", "/vms/"+id+"/stop", "<action/>")
	e.clock.Advance(time.Minute)
	if now := e.must("GET", "/vms/"+id, ""); now.str("memory") != "2148532224" || now.str("next_run_configuration_exists") != "false" {
		t.Fatalf("got %s", text(now))
	}
}

// The engine accepts an increase that the host cannot make, and reports that as an
// event only.
func TestCPUsAndMemoryOfARunningVMAreIncreased(t *testing.T) {
	const (
		two   = "<vm><memory>2147483648</memory></vm>"
		cpus  = "<vm><cpu><topology><cores>1</cores><sockets>2</sockets><threads>1</threads></topology></cpu></vm>"
		cores = "<vm><cpu><topology><cores>2</cores><sockets>1</sockets><threads>1</threads></topology></cpu></vm>"
		fewer = "<vm><memory>805306368</memory><memory_policy><guaranteed>805306368</guaranteed></memory_policy></vm>"
		huge  = "<custom_properties><custom_property><name>hugepages</name><value>2048</value></custom_property></custom_properties>"
	)
	for name, tc := range map[string]struct {
		vm, change      string
		sockets, memory string
		event           string
	}{
		"Memory":        {change: two, sockets: "1", memory: "2147483648"},
		"CPUs":          {change: cpus, sockets: "2", memory: "1073741824"},
		"Cores":         {change: cores, sockets: "1", memory: "1073741824"},
		"LessMemory":    {change: fewer, sockets: "1", memory: "1073741824"},
		"PinnedCPUs":    {vm: "<cpu_pinning_policy>dedicated</cpu_pinning_policy>", change: cpus, sockets: "1", memory: "1073741824", event: "Failed to hot set number of CPUs of VM a."},
		"HugePages":     {vm: huge, change: two, sockets: "1", memory: "1073741824", event: "Failed to hot set memory of VM a."},
		"CPUsAndMemory": {change: strings.TrimSuffix(cpus, "</vm>") + "<memory>2147483648</memory></vm>", sockets: "2", memory: "2147483648"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			id := e.vm("a", tc.vm)
			e.up(id)
			e.must("PUT", "/vms/"+id, tc.change)
			now := e.must("GET", "/vms/"+id, "")
			if now.str("cpu/topology/sockets") != tc.sockets || now.str("cpu/topology/cores") != "1" || now.str("memory") != tc.memory {
				t.Errorf("got %s", text(now))
			}
			if got := e.must("GET", "/events?search=type%3D125", "").str("event/description"); !strings.HasPrefix(got, tc.event) || (got == "") != (tc.event == "") {
				t.Errorf("event %q", got)
			}
		})
	}
}

func TestMemoryOfARunningVMIsLimited(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "")
	e.up(id)
	e.refuse("PUT", "/vms/"+id, "<vm><memory>5368709120</memory></vm>", http.StatusConflict, "Memory size cannot exceed the maximum memory of the running VM (4096MB)")
}

func TestHighAvailability(t *testing.T) {
	e := newEngine(t)
	domain := e.must("GET", "/storagedomains", "").get("storage_domain").id()
	lease := "<lease><storage_domain id='" + domain + "'/></lease>"
	e.refuse("POST", "/vms", vmBody("a", lease), http.StatusConflict, "high availability option is set to false")
	ha := "<high_availability><enabled>true</enabled></high_availability>"
	leased, plain, mortal := e.vm("leased", ha+lease), e.vm("plain", ha), e.vm("mortal", "")
	hosts := e.must("GET", "/hosts", "").all("host")
	for _, id := range []string{leased, plain, mortal} {
		e.must("PUT", "/vms/"+id, "<vm><placement_policy><affinity>migratable</affinity></placement_policy></vm>")
	}
	if err := e.SetHostStatus(hosts[1].str("name"), hostMaintenance); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{leased, plain, mortal} {
		e.up(id)
	}
	for name, status := range map[string]HostStatus{hosts[1].str("name"): hostUp, hosts[0].str("name"): hostNonResponsive} {
		if err := e.SetHostStatus(name, status); err != nil {
			t.Fatal(err)
		}
	}
	e.want(plain, vmUnknown)
	e.clock.Advance(time.Minute)
	e.want(leased, vmUp)
	e.want(plain, vmUnknown)
	if host := e.must("GET", "/vms/"+leased, "").get("host").id(); host != hosts[1].id() {
		t.Fatalf("restarted on %s", host)
	}
	if err := e.SetHostStatus(hosts[0].str("name"), hostDown); err != nil {
		t.Fatal(err)
	}
	e.clock.Advance(time.Minute)
	e.want(plain, vmUp)
	e.want(mortal, vmDown)
}

func TestScheduling(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Inventory.Hosts = []HostSpec{{Name: "h1", Cores: 4, MemoryMiB: 4096}, {Name: "h2", Cores: 4, MemoryMiB: 4096}}
	})
	big := e.vm("big", "<memory>8589934592</memory>")
	e.refuse("POST", "/vms/"+big+"/start", "<action/>", http.StatusConflict, "its available memory is too low (4096 MB) to run the VM")
	wide := e.vm("wide", "<cpu><topology><cores>8</cores></topology></cpu>")
	e.refuse("POST", "/vms/"+wide+"/start", "<action/>", http.StatusConflict, "insufficient amount of CPU cores")

	cluster := e.must("GET", "/clusters", "").get("cluster").id()
	group := e.must("POST", "/clusters/"+cluster+"/affinitygroups",
		"<affinity_group><name>apart</name><vms_rule><enabled>true</enabled><enforcing>true</enforcing><positive>false</positive></vms_rule></affinity_group>")
	hosts := map[string]bool{}
	ids := []string{e.vm("a", ""), e.vm("b", ""), e.vm("c", "")}
	for _, id := range ids {
		e.must("POST", "/clusters/"+cluster+"/affinitygroups/"+group.id()+"/vms", "<vm id='"+id+"'/>")
	}
	for _, id := range ids[:2] {
		e.up(id)
		hosts[e.must("GET", "/vms/"+id, "").get("host").id()] = true
	}
	if len(hosts) != 2 {
		t.Fatalf("both run on %v", hosts)
	}
	e.refuse("POST", "/vms/"+ids[2]+"/start", "<action/>", http.StatusConflict, "it matched negative affinity rules apart")
	e.must("DELETE", "/vms/"+ids[2], "")
	if left := e.must("GET", "/clusters/"+cluster+"/affinitygroups/"+group.id(), "").all("vms/vm"); len(left) != 2 {
		t.Fatalf("left in the group: %d", len(left))
	}
}
