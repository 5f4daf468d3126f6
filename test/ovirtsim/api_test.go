package ovirtsim

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSessions(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.TokenLifetime = time.Hour; o.TokenIdle = 10 * time.Minute })
	if status, answer := e.signIn(DefaultUsername, "wrong"); status != http.StatusBadRequest || answer["error_code"] != "access_denied" {
		t.Fatalf("a wrong password: %d %v", status, answer)
	}
	e.must("GET", "", "")
	e.clock.Advance(11 * time.Minute)
	status, header, body := e.raw("GET", "/vms", "")
	if status != http.StatusUnauthorized || header.Get("WWW-Authenticate") == "" || !strings.Contains(body, "<html>") || !strings.Contains(body, "invalid_grant") {
		t.Fatalf("an idle session: %d %v %s", status, header, body)
	}
	e.login()
	for range 7 {
		e.clock.Advance(9 * time.Minute)
		status, _, _ = e.raw("GET", "/vms", "")
	}
	if status != http.StatusUnauthorized {
		t.Fatalf("an old session: %d", status)
	}
}

func TestPathsAreNotRedirected(t *testing.T) {
	e := newEngine(t)
	if status, _, _ := e.raw("POST", "//tags/", "<tag><name>a</name></tag>"); status != http.StatusCreated {
		t.Fatalf("got %d", status)
	}
	if status, _, _ := e.raw("GET", "/nothing", ""); status != http.StatusNotFound {
		t.Fatalf("an unknown collection: %d", status)
	}
	if status, _ := e.send("GET", "/vms/nothing", ""); status != http.StatusBadRequest {
		t.Fatalf("no UUID: %d", status)
	}
	if status, _ := e.send("POST", "/vms", "<vm><name>a < b</name></vm>"); status != http.StatusBadRequest {
		t.Fatalf("broken XML: %d", status)
	}
}

func TestSearch(t *testing.T) {
	e := newEngine(t)
	for i := range 3 {
		e.vm(fmt.Sprintf("node-%d", i), "")
	}
	e.up(e.vm("Other", "<comment>a b</comment>"))
	e.must("POST", "/tags", "<tag><name>mine</name></tag>")
	first := e.must("GET", "/vms?search=name%3Dnode-0", "").get("vm").id()
	e.must("POST", "/vms/"+first+"/tags", "<tag><name>mine</name></tag>")
	for query, want := range map[string]string{
		"name=node-1":                          "node-1",
		"name=node-*":                          "node-0 node-1 node-2",
		`tag = "mine" AND name = "node-0"`:     "node-0",
		"tag=mine and name=node-1":             "",
		"status=up":                            "Other",
		"status!=up sortby name desc":          "node-2 node-1 node-0",
		"name=other":                           "",
		"name=node-0 or name=Other":            "node-0 Other",
		`comment="a b"`:                        "Other",
		"Vms: name=node-2":                     "node-2",
		"name=node-* page 2":                   "",
		"datacenter=Default and template=node": "node-0 node-1 node-2 Other",
	} {
		found := e.must("GET", "/vms?search="+strings.NewReplacer(" ", "%20", "=", "%3D", "*", "%2A").Replace(query), "")
		var names []string
		for _, v := range found.kids {
			names = append(names, v.str("name"))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	if got := e.must("GET", "/vms?max=2", ""); len(got.kids) != 2 {
		t.Errorf("max: %d", len(got.kids))
	}
	if got := e.must("GET", "/vms?search=name%3Dnode-*%20page%202&max=2", ""); len(got.kids) != 1 {
		t.Errorf("page 2: %d", len(got.kids))
	}
	if got := e.must("GET", "/vms?case_sensitive=false&search=name%3Dother", ""); len(got.kids) != 1 {
		t.Errorf("without case: %d", len(got.kids))
	}
	e.refuse("GET", "/vms?search=color%3Dred", "", http.StatusBadRequest, "not valid")
}

func TestInjectedFaults(t *testing.T) {
	e := newEngine(t)
	e.Inject(Fault{Method: "POST", Path: "vms", Status: http.StatusConflict, Reason: operationFailed, Detail: "[no]", Skip: 1})
	e.must("POST", "/vms", vmBody("a", ""))
	e.refuse("POST", "/vms", vmBody("b", ""), http.StatusConflict, "no")
	e.Inject(Fault{Method: "POST", Path: "vms", Drop: true, After: true})
	if status, _, _ := e.raw("POST", "/vms", vmBody("b", "")); status != 0 {
		t.Fatalf("a lost answer: %d", status)
	}
	e.refuse("POST", "/vms", vmBody("b", ""), http.StatusConflict, "already in use")
	e.Inject(Fault{Path: "vms/*/start", Status: http.StatusConflict, Reason: operationFailed, Times: -1})
	for range 3 {
		id := e.must("GET", "/vms?search=name%3Da", "").get("vm").id()
		status, answer := e.send("POST", "/vms/"+id+"/start", "<action/>")
		if status != http.StatusConflict || answer.str("fault/reason") != operationFailed {
			t.Fatalf("an action's fault: %d %s", status, text(answer))
		}
	}
}

func TestRestart(t *testing.T) {
	e := newEngine(t)
	e.Restart(time.Minute)
	status, header, body := e.raw("GET", "/vms", "")
	if status != http.StatusServiceUnavailable || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(body, "503") {
		t.Fatalf("while it restarts: %d %s", status, body)
	}
	e.clock.Advance(time.Minute)
	if status, _, _ := e.raw("GET", "/vms", ""); status != http.StatusUnauthorized {
		t.Fatalf("sessions outlive it: %d", status)
	}
	e.login()
	e.must("GET", "/vms", "")
}

func TestStorage(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Inventory.Domains = []DomainSpec{{Name: "d", Type: "nfs", SizeGiB: 20}} })
	domain := e.must("GET", "/storagedomains", "").get("storage_domain").id()
	body := func(gib int64, sparse bool) string {
		return fmt.Sprintf("<disk><alias>x</alias><format>raw</format><provisioned_size>%d</provisioned_size><sparse>%t</sparse><storage_domains><storage_domain id='%s'/></storage_domains></disk>", gib<<30, sparse, domain)
	}
	available := func() string { return e.must("GET", "/storagedomains/"+domain, "").str("available") }
	before := available()
	e.must("POST", "/disks", body(100, true))
	thin := available()
	if status, _ := e.send("POST", "/disks", body(10, false)); status != http.StatusAccepted {
		t.Fatalf("create: %d", status)
	}
	if got := strconv.FormatInt(9*gib-emptyRaw, 10); available() != got || thin == before {
		t.Fatalf("available: %s, %s, %s, want %s", before, thin, available(), got)
	}
	e.refuse("POST", "/disks", body(5, false), http.StatusConflict, "Low disk space on Storage Domain d")
}

func TestDisksOfOthersStay(t *testing.T) {
	e := newEngine(t)
	domain := e.must("GET", "/storagedomains", "").get("storage_domain").id()
	disk := e.must("POST", "/disks?correlation_id=c1", "<disk><alias>x</alias><format>cow</format><provisioned_size>1073741824</provisioned_size><storage_domains><storage_domain id='"+domain+"'/></storage_domains></disk>").id()
	attach := "<disk_attachment><interface>virtio</interface><disk id='" + disk + "'/></disk_attachment>"
	a, b := "/vms/"+e.vm("a", ""), "/vms/"+e.vm("b", "")
	if job := e.must("GET", "/jobs?search=correlation_id%3Dc1", "").get("job"); job.str("status") != "finished" {
		t.Fatalf("the job: %s", text(job))
	}
	e.must("POST", a+"/diskattachments", attach)
	e.refuse("POST", b+"/diskattachments", attach, http.StatusConflict, "already attached to a VM")
	e.must("DELETE", a+"/diskattachments/"+disk, "")
	e.must("DELETE", a, "")
	e.clock.Advance(time.Minute)
	e.must("POST", b+"/diskattachments", attach)
	e.must("PUT", "/disks/"+disk, "<disk><provisioned_size>2147483648</provisioned_size></disk>")
	e.refuse("DELETE", b, "", http.StatusConflict, "The following disks are locked: x")
	e.clock.Advance(time.Minute)
	if size := e.must("GET", "/disks/"+disk, "").str("provisioned_size"); size != "2147483648" {
		t.Fatalf("grown to %s", size)
	}
	e.refuse("PUT", "/disks/"+disk, "<disk><provisioned_size>1</provisioned_size></disk>", http.StatusBadRequest, "must be larger")
	e.must("DELETE", b, "")
	e.clock.Advance(time.Minute)
	if status, _ := e.send("GET", "/disks/"+disk, ""); status != http.StatusNotFound {
		t.Fatalf("an attached disk outlives its VM: %d", status)
	}
}

func TestEvents(t *testing.T) {
	e := newEngine(t)
	e.up(e.vm("a", ""))
	newest := e.must("GET", "/events?max=1", "").get("event").id()
	e.vm("b", "")
	later := e.must("GET", "/events?from="+newest, "").all("event")
	if len(later) == 0 || slices.ContainsFunc(later, func(x *elem) bool { return x.get("vm") == nil }) {
		t.Fatalf("later: %d", len(later))
	}
	if found := e.must("GET", "/events?search=vms.name%3Db", "").all("event"); len(found) != len(later) {
		t.Fatalf("of b: %d, later: %d", len(found), len(later))
	}
}

// TestGolden compares the responses with recorded responses of real engines:
// each of their elements that is not excluded must be present here with a value
// of the same kind.
func TestGolden(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "")
	e.must("POST", "/vms/"+id+"/nics", "<nic><name>nic1</name><vnic_profile id='"+e.must("GET", "/vnicprofiles", "").get("vnic_profile").id()+"'/></nic>")
	e.up(id)
	if err := e.SetGuestAddresses(id, []GuestNIC{{Name: "eth0", MAC: "56:6f:1a:00:00:01"}}); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"vms": "/vms", "clusters": "/clusters", "storage_domains": "/storagedomains", "templates": "/templates?search=name%3Dnode",
		"networks": "/networks", "data_centers": "/datacenters", "disks": "/disks", "vnic_profiles": "/vnicprofiles", "hosts": "/hosts",
		"nics": "/vms/" + id + "/nics", "diskattachments": "/vms/" + id + "/diskattachments", "reporteddevices": "/vms/" + id + "/reporteddevices",
	} {
		file, err := os.Open(filepath.Join("testdata", "golden", name+".xml"))
		if err != nil {
			t.Fatal(err)
		}
		golden, err := parseElem(file)
		_ = file.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ours := e.must("GET", path, "")
		if ours.name != golden.name || ours.kids[0].name != golden.kids[0].name {
			t.Errorf("%s: %s of %s, want %s of %s", name, ours.name, ours.kids[0].name, golden.name, golden.kids[0].name)
		}
		compare(t, name, ours.kids[0], golden.kids[0])
	}
}

func compare(t *testing.T, name string, ours, golden *elem) {
	t.Helper()
	for _, want := range golden.kids {
		if want.name == "link" || slices.Contains(leftOut[name], want.name) {
			continue
		}
		got := ours.kid(want.name)
		if got == nil {
			t.Errorf("%s: no %s", name, want.name)
			continue
		}
		if kind(got) != kind(want) && want.text != "" && got.text != "" {
			t.Errorf("%s: %s is %q, as %q", name, want.name, got.text, want.text)
		}
		if (want.id() == "") != (got.id() == "") {
			t.Errorf("%s: the ID of %s is %q, as %q", name, want.name, got.id(), want.id())
		}
	}
}

func kind(e *elem) string {
	switch {
	case len(e.kids) > 0:
		return "object"
	case e.text == "true" || e.text == "false":
		return "bool"
	case e.text != "" && strings.Trim(e.text, "0123456789-") == "":
		return "number"
	}
	return "text"
}
