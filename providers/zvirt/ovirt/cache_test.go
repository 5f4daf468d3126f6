package ovirt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// newCache returns a cache whose owners are comments, and the reported
// owners.
func newCache(c *Client) (*Cache, map[string]int) {
	changed := map[string]int{}
	ownerOf := func(comment string) string { return strings.TrimPrefix(comment, "ours/") }
	return NewCache(c, PollIntervals{BusyTimeout: time.Minute, Detail: time.Minute}, "ours/", ownerOf, func(of string, _ hypervisor.Key) { changed[of]++ }), changed
}

// TestListBeforeWriteIsIgnored checks that a list before a write is
// ignored.
func TestListBeforeWriteIsIgnored(t *testing.T) {
	m, _ := newCache(nil)
	vm := VM{ID: "1", Name: "a", Comment: "ours/a", Status: "down"}
	m.Get("a", "a", "")
	older := m.startList()
	if !m.Begin("a", "Powering on") || m.Begin("a", "again") {
		t.Fatal("one write at a time")
	}
	during := m.startList()
	m.store(during, "a", vm, details)
	if got := m.Get("a", "a", ""); got.VM != nil || got.Busy != "Powering on" {
		t.Fatalf("a list changed a VM that is being written: %+v", got)
	}
	started := vm
	started.Status = "up"
	m.End("a", nil, func() { m.Put("a", started, true) })
	for _, list := range []uint64{older, during} {
		m.store(list, "a", vm, details)
	}
	if got := m.Get("a", "a", ""); got.VM == nil || got.VM.Status != "up" || got.Busy != "" {
		t.Fatalf("a list that is older than the write was used: %+v", got)
	}
	m.store(m.startList(), "a", vm, details)
	if got := m.Get("a", "a", ""); got.VM.Status != "down" {
		t.Fatalf("a later list was not used: %+v", got)
	}
}

// A machine joins its group while the groups are being listed: the list lacks
// it.
func TestGroupsBeforeWriteAreIgnored(t *testing.T) {
	answered := func() {}
	engine, c, _ := openMetered(t, func(string, string, string, time.Duration) { answered() })
	_, clusters := engine.Do(http.MethodGet, "/clusters", "")
	_, rest, _ := strings.Cut(clusters, ` id="`)
	cluster, _, _ := strings.Cut(rest, `"`)
	m, _ := newCache(c)
	m.groups[cluster] = map[string]*AffinityGroup{"g": {ID: "g", Name: "group"}}
	answered = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.AddMember(cluster, AffinityGroup{ID: "g"}, "1")
	}
	// The engine has no such group, and so no such member.
	if err := m.readGroups(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if g, ok, err := m.Group(t.Context(), cluster, "group"); err != nil || !ok || !g.Has("1") {
		t.Errorf("%+v, %t, %v: the list was used", g, ok, err)
	}
	answered = func() {}
	if err := m.readGroups(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if g, ok, err := m.Group(t.Context(), cluster, "group"); err != nil || ok {
		t.Errorf("%+v, %t, %v: a later list was not used", g, ok, err)
	}
}

func TestUnknownResultEndsWithLaterList(t *testing.T) {
	m, changed := newCache(nil)
	m.Get("a", "a", "")
	m.Begin("a", "Creating")
	older := m.startList()
	m.End("a", &transport.UnreachableError{Err: errors.New("gone")}, nil)
	all := func(string) bool { return true }
	m.confirm(older, all)
	if got := m.Get("a", "a", ""); got.Busy == "" || m.Begin("a", "Creating") {
		t.Fatalf("an older list cleared the unknown result: %+v", got)
	}
	m.confirm(m.startList(), func(name string) bool { return name == "b" })
	if m.Get("a", "a", "").Busy == "" {
		t.Fatal("a list of others cleared the unknown result")
	}
	m.confirm(m.startList(), all)
	if m.Get("a", "a", "").Busy != "" || changed["a"] != 1 {
		t.Fatalf("a later list kept the unknown result; changes:  %v", changed)
	}
}

func TestAwaitedVM(t *testing.T) {
	m, _ := newCache(nil)
	m.owners.Appear = time.Hour
	old, young := time.Now().Add(-time.Hour), time.Now().Add(time.Minute) // the clock of the API server may be a minute ahead
	if !m.MayAppear("a", old) || m.MayAppear("b", young) {
		t.Fatal("a previous process can have requested only VMs of owners that existed")
	}
	ask := func(err error) {
		m.Begin("b", "Creating")
		m.End("b", err, func() {})
		m.confirm(m.startList(), func(string) bool { return true })
	}
	if ask(&Error{Status: http.StatusConflict}); m.MayAppear("b", young) {
		t.Error("a rejected creation must not be awaited")
	}
	if ask(&transport.UnreachableError{Err: errors.New("gone")}); !m.MayAppear("b", young) {
		t.Error("a creation without a response must be awaited")
	}
	m.store(m.startList(), "b", VM{ID: "1", Name: "b"}, details)
	m.Get("b", "b", "")
	if ask(&transport.UnreachableError{Err: errors.New("gone")}); m.MayAppear("b", young) {
		t.Error("an observed VM must not be awaited")
	}
	m.Remove("1")
	if m.MayAppear("b", young) {
		t.Error("a deleted VM must not be awaited")
	}
}

// The end of the wait is reported without a call.
func TestEndOfWaitIsReported(t *testing.T) {
	_, c, _ := open(t)
	m, changed := newCache(c)
	m.owners.Appear = time.Hour
	learn := func() int {
		if err := m.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		return changed["a"]
	}
	if !m.MayAppear("a", time.Time{}) || learn() != 0 {
		t.Fatal("the change was reported too early")
	}
	m.owners.Appear = time.Nanosecond
	for range 2 {
		if n := learn(); n != 1 {
			t.Errorf("the change was reported %d times", n)
		}
	}
	if m.MayAppear("a", time.Time{}) {
		t.Error("the VM is still awaited")
	}
}

func TestRejectionHasKnownResult(t *testing.T) {
	m, _ := newCache(nil)
	m.Begin("a", "Creating")
	m.End("a", &Error{Status: http.StatusConflict}, nil)
	if got := m.Get("a", "a", ""); got.Busy != "" {
		t.Errorf("got %+v", got)
	}
	m.Begin("a", "Creating")
	m.End("a", context.Canceled, nil)
	if got := m.Get("a", "a", ""); got.Busy == "" {
		t.Error("the result of a canceled request is unknown")
	}
}

func TestGetByIDOrName(t *testing.T) {
	m, _ := newCache(nil)
	m.Put("a", VM{ID: "1", Name: "a"}, false)
	m.Put("a", VM{ID: "2", Name: "copy-of-a"}, false)
	m.Put("b", VM{ID: "4", Name: "b"}, false)
	m.Put("b", VM{ID: "3", Name: "b"}, false)
	m.Put("b", VM{ID: "5", Name: "copy-of-b"}, false)
	for _, tt := range []struct{ of, name, id, want, unclear string }{
		{"a", "a", "", "1", ""}, {"a", "renamed", "1", "1", ""}, {"a", "a", "3", "", ""}, {"none", "a", "", "", ""},
		// A VM with another name may have been renamed, and one of two with the
		// same name may be a copy.
		{"a", "renamed", "", "", "1 2"}, {"b", "b", "", "", "3 4"}, {"b", "b", "4", "4", ""}, {"b", "b", "6", "", ""},
	} {
		got, unclear := "", ""
		v := m.Get(tt.of, tt.name, tt.id)
		if v.VM != nil {
			got = v.VM.ID
		}
		for _, vm := range v.Ambiguous {
			unclear = strings.TrimSpace(unclear + " " + vm.ID)
		}
		if got != tt.want || unclear != tt.unclear {
			t.Errorf("%+v: got %q, unclear %q", tt, got, unclear)
		}
	}
}

func TestIdleVMsNeedOneList(t *testing.T) {
	engine, c, _ := open(t)
	const count = 90
	for i := range count {
		status, answer := engine.Do(http.MethodPost, "/vms", fmt.Sprintf(
			`<vm><name>vm-%d</name><comment>ours/%d</comment><cluster><name>Default</name></cluster><template><name>Blank</name></template></vm>`, i, i))
		if status >= 300 {
			t.Fatal(answer)
		}
	}
	m, changed := newCache(c)
	m.intervals.Idle, m.intervals.Groups = time.Nanosecond, time.Hour
	for i := range count {
		m.Get(strconv.Itoa(i), fmt.Sprintf("vm-%d", i), "")
	}
	poll := func() int {
		engine.ResetRequests()
		if err := m.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		return engine.Requests()["GET /vms"]
	}
	for i := range count { // an unknown VM is read with the next list
		m.SetIdle(strconv.Itoa(i), true)
	}
	if n := poll(); n != 1+(count+batch-1)/batch {
		t.Errorf("%d requests to list %d VMs", n, count)
	}
	if len(changed) != count {
		t.Errorf("%d changes were reported", len(changed))
	}
	if n := poll(); n != 1 {
		t.Errorf("%d requests in the steady state", n)
	}
	status, answer := engine.Do(http.MethodDelete, "/vms/"+m.Get("7", "vm-7", "").VM.ID, "")
	if status >= 300 {
		t.Fatal(answer)
	}
	clear(changed)
	if n := poll(); n != 1 || changed["7"] != 1 || len(changed) != 1 || m.Get("7", "vm-7", "").VM != nil {
		t.Errorf("%d requests; changes: %v", n, changed)
	}
}

func TestBusyTimeout(t *testing.T) {
	m, _ := newCache(nil)
	m.SetIdle("a", false)
	s := m.owner("a")
	if !s.isPolledOften(time.Now(), time.Minute) || s.isPolledOften(time.Now().Add(time.Hour), time.Minute) {
		t.Error("an idle VM is polled at the wrong interval")
	}
	s.resultUnknown = true
	if !s.isPolledOften(time.Now().Add(time.Hour), time.Minute) {
		t.Error("an unknown result must be checked")
	}
}

func TestDirectory(t *testing.T) {
	engine, c, _ := open(t)
	d := NewDirectory(c)
	one, err := d.Find(t.Context(), Hosts, "host1", Any)
	if err != nil || one.ID == "" {
		t.Fatal(one, err)
	}
	if byID, err := d.Find(t.Context(), Hosts, one.ID, Any); err != nil || byID.Name != "host1" {
		t.Errorf("by ID: %+v, %v", byID, err)
	}
	for name, want := range map[string]string{"": "several", "host9": "does not exist"} {
		if _, err := d.Find(t.Context(), Hosts, name, Any); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if n := engine.Requests()["GET /hosts"]; n != 1 {
		t.Errorf("%d requests", n)
	}
	for name, known := range map[string]bool{"ovirtmgmt/ovirtmgmt": true, "ovirtmgmt/none": false, "none/none": false, "ovirtmgmt": true} {
		dc, err := d.Find(t.Context(), DataCenters, "", Any)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := d.Profile(t.Context(), name, dc.ID); (err == nil) != known || (found.ID != "") != known {
			t.Errorf("%s: %q, %v", name, found.ID, err)
		}
	}
	if _, err := d.Template(t.Context(), ovirtsim.BlankTemplateID, "", 0, ""); err != nil {
		t.Error(err)
	}
	if _, err := d.Template(t.Context(), "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11", "", 0, ""); err == nil {
		t.Error("a template that does not exist was found")
	}
}

// Only lists that contain an object of a rejected request are read again.
func TestOnlyUsedListsAreInvalidated(t *testing.T) {
	engine, c, _ := open(t)
	d := NewDirectory(c)
	ids := map[string]string{}
	for kind, name := range map[string]string{Hosts: "host1", Clusters: "Default", StorageDomains: "data1"} {
		found, err := d.Find(t.Context(), kind, name, Any)
		if err != nil {
			t.Fatal(err)
		}
		ids[kind] = found.ID
	}
	refused := Request{Path: []string{"vms"}, Body: &VM{Cluster: Ref(ids[Clusters])}}
	for _, tt := range []struct {
		age      time.Duration
		clusters int
	}{{0, 0}, {2 * fresh, 1}} {
		for kind, known := range d.lists {
			known.at = time.Now().Add(-tt.age)
			d.lists[kind] = known
		}
		engine.ResetRequests()
		d.Forget(refused.Uses)
		for kind, id := range ids {
			if _, err := d.Find(t.Context(), kind, id, Any); err != nil {
				t.Fatal(err)
			}
		}
		if got := engine.Requests(); got["GET /clusters"] != tt.clusters || got["GET /hosts"]+got["GET /storagedomains"] != 0 {
			t.Errorf("lists of %s: %v", tt.age, got)
		}
	}
	for _, path := range [][]string{{"clusters", ids[Clusters], "affinitygroups"}, {"vms"}} {
		if r := (Request{Path: path}); r.Uses(ids[Clusters]) != (len(path) > 1) || r.Uses(ids[Hosts]) {
			t.Errorf("%v: the wrong objects are used", path)
		}
	}
}

// marked creates VMs with a owner each.
func marked(t *testing.T, engine *ovirtsim.Server, count int) []string {
	t.Helper()
	var ids []string
	for i := range count {
		status, answer := engine.Do(http.MethodPost, "/vms", fmt.Sprintf(
			`<vm><name>vm-%d</name><comment>ours/%d</comment><cluster><name>Default</name></cluster><template><name>Blank</name></template></vm>`, i, i))
		if status >= http.StatusMultipleChoices {
			t.Fatal(answer)
		}
		_, rest, _ := strings.Cut(answer, ` id="`)
		id, _, _ := strings.Cut(rest, `"`)
		ids = append(ids, id)
	}
	return ids
}

// A list of several pages contains all VMs, even if one is removed between two
// pages.
func TestPages(t *testing.T) {
	answered := func() {}
	engine, c, _ := openMetered(t, func(string, string, string, time.Duration) { answered() })
	m, changed := newCache(c)
	m.page = 2
	ids := marked(t, engine, 7)
	for i := range ids {
		m.Get(strconv.Itoa(i), fmt.Sprintf("vm-%d", i), "")
	}
	engine.ResetRequests()
	if err := m.listAll(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := len(m.All()); got != len(ids) || engine.Requests()["GET /vms"] != 4 {
		t.Fatalf("%d VMs after %v", got, engine.Requests())
	}
	clear(changed)
	answered = func() {
		answered = func() {}
		if status, answer := engine.Do(http.MethodDelete, "/vms/"+ids[0], ""); status >= http.StatusMultipleChoices {
			t.Error(answer)
		}
	}
	if err := m.listAll(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	// The first VM was on the first page, so only the next list lacks it.
	if got := len(m.All()); got != len(ids) || len(changed) != 0 {
		t.Errorf("%d VMs, and the changes %v", got, changed)
	}
	if err := m.listAll(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := len(m.All()); got != len(ids)-1 || changed["0"] != 1 || len(changed) != 1 {
		t.Errorf("%d VMs, and the changes %v", got, changed)
	}
}

// Between two lists of all VMs, only the clusters with VMs of known machines
// are searched. A VM that was moved or removed is still detected.
func TestClustersAreSearched(t *testing.T) {
	engine, c, _ := openWith(t, ovirtsim.Options{
		Inventory: ovirtsim.Inventory{Clusters: []ovirtsim.ClusterSpec{{Name: "Edge"}}},
	}, func(string, string, string, time.Duration) {})
	m, changed := newCache(c)
	m.intervals.AllClusters, m.intervals.Groups = time.Hour, time.Hour
	ids := marked(t, engine, 3)
	change := func(method, id, body string) {
		t.Helper()
		if status, answer := engine.Do(method, "/vms/"+id, body); status >= http.StatusMultipleChoices {
			t.Fatal(answer)
		}
	}
	move := func(id, cluster string) {
		change(http.MethodPut, id, "<vm><cluster><name>"+cluster+"</name></cluster></vm>")
	}
	poll := func() {
		t.Helper()
		clear(changed)
		if err := m.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	move(ids[2], "Edge") // this one is not known
	if err := m.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		m.Get(strconv.Itoa(i), fmt.Sprintf("vm-%d", i), ids[i])
	}
	_ = engine.SetVMStatus(ids[0], "up")
	_ = engine.SetVMStatus(ids[2], "up")
	poll()
	for i, want := range []string{"up", "down", "down"} {
		if got := m.vms[ids[i]].vm.Status; got != want {
			t.Errorf("VM %d is %s, want %s", i, got, want)
		}
	}
	_ = engine.SetVMStatus(ids[0], "down")
	move(ids[0], "Edge")
	poll()
	if len(m.vms) != 3 || m.vms[ids[0]].vm.Cluster.ID != m.vms[ids[2]].vm.Cluster.ID {
		t.Errorf("%d VMs after one was moved", len(m.vms))
	}
	if n := len(m.clusters(time.Now())); n != 2 {
		t.Errorf("%d clusters are searched, want both", n)
	}
	change(http.MethodDelete, ids[1], "")
	poll()
	if m.vms[ids[1]] != nil || changed["1"] != 1 {
		t.Errorf("a VM that was removed is known, and the changes %v", changed)
	}
	// A VM with an unknown creation may appear in any cluster.
	if m.owners.Appear = time.Hour; !m.MayAppear("late", time.Time{}) || m.clusters(time.Now()) != nil {
		t.Error("not all clusters are searched for a VM that may still appear")
	}
}

// While a VM waits for its address, only the links with addresses are followed.
func TestOnlyReportsAreFollowed(t *testing.T) {
	engine, c, _ := open(t)
	m, _ := newCache(c)
	m.intervals.SlowAfter = time.Minute
	id := marked(t, engine, 1)[0]
	m.Get("0", "vm-0", "")
	look := func(status string) (followed int) {
		t.Helper()
		if err := engine.SetVMStatus(id, status); err != nil {
			t.Fatal(err)
		}
		if err := m.Poll(t.Context()); err != nil { // the change of the state is seen
			t.Fatal(err)
		}
		engine.ResetRequests()
		for range 3 {
			if err := m.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return engine.Followed()
	}
	if err := m.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.intervals.Idle, m.intervals.Groups = time.Hour, time.Hour
	m.SetIdle("0", false)
	if got := look("down"); got < 3*5 {
		t.Errorf("%d objects were followed before the first boot, so details are missing", got)
	}
	if got := look("up"); got != 3*2 {
		t.Errorf("%d objects were followed for a VM that waits for its address, want 6", got)
	}
	m.intervals.SlowAfter, m.intervals.Slow = 0, time.Hour
	if got := look("up"); got > 2 {
		t.Errorf("%d objects were followed for a VM that has waited for long", got)
	}
}
