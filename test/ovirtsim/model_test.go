package ovirtsim

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Requests are compared with the model of the engine's API.
func TestRequestsFitTheAPI(t *testing.T) {
	const id = "5f1c0f9e-5b1c-4c0e-9d3c-6d3d4c0f4e11"
	for _, test := range []struct {
		name, method, path, body string
		// refused is part of the fault; empty for a request that is taken.
		refused string
	}{
		{"a list", "GET", "vms?search=name%3Dx&max=10&case_sensitive=true&follow=disk_attachments.disk,nics", "", ""},
		{"a parameter of another method", "GET", "vms/" + id + "?search=x", "", "the parameter search"},
		{"an unknown parameter", "GET", "vms?page=2", "", "the parameter page"},
		{"a number that is none", "GET", "vms?max=all", "", `the parameter max is "all"`},
		{"a truth that is none", "DELETE", "vms/" + id + "?detach_only=yes", "", `the parameter detach_only is "yes"`},
		{"follow of a link", "GET", "vms/" + id + "?follow=diskattachments.disk", "", ""},
		{"follow of a field", "GET", "vms/" + id + "?follow=memory", "", "follow of memory"},
		{"an unknown collection", "GET", "virtualmachines", "", "the path /virtualmachines"},
		{"an unknown action", "POST", "vms/" + id + "/poweroff", "<action/>", "the action poweroff"},
		{"an action", "POST", "vms/" + id + "/start", "<action><use_ignition>true</use_ignition></action>", ""},
		{"an action without its body", "POST", "vms/" + id + "/stop", "", "a body that is no <action>"},
		{"an input of another action", "POST", "vms/" + id + "/stop", "<action><use_ignition>true</use_ignition></action>", "action.use_ignition"},
		{"a VM", "POST", "vms?clone=true", `<vm><name>a</name><cluster id="x"/><template><name>t</name></template><type>server</type></vm>`, ""},
		{"a VM without template", "POST", "vms", `<vm><name>a</name><cluster id="x"/></vm>`, "vm.template.id or vm.template.name is required"},
		{"an unknown element", "POST", "vms", `<vm><name>a</name><cluster id="x"/><template id="t"/><cpus>2</cpus></vm>`, "vm.cpus"},
		{"an unknown element below", "PUT", "vms/" + id, `<vm><memory_policy><minimum>1</minimum></memory_policy></vm>`, "vm.memory_policy.minimum"},
		{"a value of no enum", "PUT", "vms/" + id, `<vm><type>Server</type></vm>`, `vm.type is "Server", which is no vm_type`},
		{"an empty number", "PUT", "vms/" + id, `<vm><memory></memory></vm>`, "vm.memory"},
		{"an element twice", "PUT", "vms/" + id, `<vm><name>a</name><name>b</name></vm>`, "vm.name twice"},
		{"an unknown attribute", "PUT", "vms/" + id, `<vm version="4"></vm>`, "vm@version"},
		{"a member of another list", "PUT", "vms/" + id, `<vm><nics><disk/></nics></vm>`, "vm.nics.disk"},
		{"another body", "POST", "vms/" + id + "/nics", `<interface><name>nic1</name></interface>`, "a body that is no <nic>"},
		{"a disk attachment by ID", "POST", "vms/" + id + "/diskattachments", `<disk_attachment><interface>virtio_scsi</interface><disk id="d"/></disk_attachment>`, ""},
		{"an interface that is none", "POST", "vms/" + id + "/diskattachments", `<disk_attachment><interface>scsi</interface><disk id="d"/></disk_attachment>`, "disk_interface"},
		{"a group without name", "POST", "clusters/" + id + "/affinitygroups", `<affinity_group><vms_rule><enabled>true</enabled></vms_rule></affinity_group>`, "group.name is required"},
		{"a body for a deletion", "DELETE", "disks/" + id, `<disk/>`, "a body where the method has none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			address, err := url.Parse(test.path)
			if err != nil {
				t.Fatal(err)
			}
			var body *elem
			if test.body != "" {
				if body, err = parseElem(strings.NewReader(test.body)); err != nil {
					t.Fatal(err)
				}
			}
			err = loadModel().check(test.method, split(address.Path), address.Query(), body)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("got %v, want a refusal with %q", err, test.refused)
			}
		})
	}
}

// Every path that the simulator serves is one of the API.
func TestRoutesAreOfTheAPI(t *testing.T) {
	s := &Server{}
	for _, r := range s.table() {
		if r.method == "OPTIONS" {
			continue
		}
		if _, _, err := loadModel().find(r.method, r.parts); err != nil {
			t.Errorf("%s %s: %v", r.method, r.path, err)
		}
	}
}

// The server compares every request with the model, on every path.
func TestEveryRequestIsChecked(t *testing.T) {
	e := newEngine(t)
	for _, r := range e.routes {
		if r.method == http.MethodOptions {
			continue
		}
		path := "/" + strings.ReplaceAll(r.path, "{}", newID()) + "?surely_unknown=1"
		status, answer := e.send(r.method, path, "")
		if detail := answer.str("detail") + answer.str("fault/detail"); status != http.StatusBadRequest || !strings.Contains(detail, "not in the engine's API: the parameter surely_unknown") {
			t.Errorf("%s %s: %d %s", r.method, r.path, status, text(answer))
		}
	}
}
