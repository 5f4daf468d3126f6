package ovirtsim

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestControl(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control")
	e := newEngine(t, func(o *Options) { o.ControlSocket = socket })
	c, ctx := NewControl(socket), t.Context()
	good := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	info, err := c.Info(ctx)
	good(err)
	if info.URL != e.URL || info.CABundle != e.CABundle || info.Username != DefaultUsername {
		t.Errorf("info: %+v", info)
	}
	good(c.InjectFault(ctx, Fault{Method: "GET", Path: "vms", Status: http.StatusServiceUnavailable}))
	good(c.ClearFaults(ctx))
	good(c.InjectFault(ctx, Fault{Method: "GET", Path: "vms", Status: http.StatusServiceUnavailable}))
	if status, _, _ := e.raw("GET", "/vms", ""); status != http.StatusServiceUnavailable {
		t.Errorf("an injected fault: %d", status)
	}
	if counts, err := c.Requests(ctx); err != nil || counts["GET /vms"] != 1 {
		t.Errorf("requests: %v %v", counts, err)
	}
	if counts, err := c.Connections(ctx); err != nil || counts != (Connections{Made: 1, Open: 1}) {
		t.Errorf("connections: %+v %v", counts, err)
	}
	good(c.ResetRequests(ctx))
	if counts, err := c.Requests(ctx); err != nil || len(counts) != 0 {
		t.Errorf("after a reset: %v %v", counts, err)
	}
	if err := c.SetTiming(ctx, "none", time.Second); err == nil || !strings.Contains(err.Error(), `no timing "none"`) {
		t.Errorf("an unknown timing: %v", err)
	}
	good(c.SetTiming(ctx, TimePoweringUp, time.Second))
	good(c.SetHostStatus(ctx, "host1", hostMaintenance))
	if status := e.must("GET", "/hosts?search=name%3Dhost1", "").str("host/status"); status != hostMaintenance {
		t.Errorf("the host is %s", status)
	}
	good(c.SetDomain(ctx, "data1", "", 500))
	if room := e.must("GET", "/storagedomains?search=name%3Ddata1", "").str("storage_domain/available"); room != "0" {
		t.Errorf("the domain has %s left", room)
	}
	good(c.SetDomain(ctx, "data1", "", 0))
	steerVM(t, e, c)
	good(c.ExpireSessions(ctx))
	if status, _, _ := e.raw("GET", "/vms", ""); status != http.StatusUnauthorized {
		t.Errorf("sessions are left: %d", status)
	}
}

// steerVM changes a VM as a user of the engine does, without the client under
// test.
func steerVM(t *testing.T, e *engine, c *Control) {
	t.Helper()
	ctx := t.Context()
	id := e.vm("a", "")
	requests, err := c.Requests(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return c.PowerOn(ctx, "a") }, vmUp},
		{func() error { return c.SetGuestHostName(ctx, id, "a.example") }, vmUp},
		{func() error {
			return c.SetGuestAddresses(ctx, id, []GuestNIC{{Name: "eth0", MAC: "56:6f:1a:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}}})
		}, vmUp},
		{func() error { return c.Rename(ctx, id, "b") }, vmUp},
		{func() error { return c.PowerOff(ctx, "b") }, vmDown},
		{func() error { return c.PowerOn(ctx, "b") }, vmUp},
		{func() error { return c.Shutdown(ctx, "b") }, vmDown},
		{func() error { return c.PowerOn(ctx, "b") }, vmUp},
		{func() error { return c.GuestStopped(ctx, id) }, vmDown},
		{func() error { return c.PowerOn(ctx, "b") }, vmUp},
		{func() error { return c.GuestDied(ctx, id) }, vmDown},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		e.clock.Advance(time.Minute)
		if found, err := c.FindVM(ctx, id); err != nil || found.Status != step.want {
			t.Fatalf("got %+v %v, want %s", found, err, step.want)
		}
	}
	if err := c.Delete(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "b"); err == nil || !strings.Contains(err.Error(), "there are 0") {
		t.Fatalf("a removed VM: %v", err)
	}
	if _, err := c.Do(ctx, http.MethodGet, "/vms/"+id, ""); err == nil || !strings.Contains(err.Error(), "answered 404") {
		t.Fatalf("a request for a removed VM: %v", err)
	}
	if now, err := c.Requests(ctx); err != nil || len(now) != len(requests) {
		t.Fatalf("these were counted: %v %v", now, err)
	}
}

func TestEngineThatDoesNotAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control")
	e := newEngine(t, func(o *Options) { o.ControlSocket = socket })
	c, ctx := NewControl(socket), t.Context()
	for _, state := range []struct {
		set    func(context.Context, bool) error
		answer func() bool
	}{
		{c.SetDown, func() bool { status, _, _ := e.raw("GET", "/vms", ""); return status == http.StatusServiceUnavailable }},
		{c.SetUnreachable, func() bool { status, _, _ := e.raw("GET", "/vms", ""); return status == 0 }},
		{c.SetHanging, func() bool {
			e.client.Timeout = 100 * time.Millisecond
			defer func() { e.client.Timeout = 30 * time.Second }()
			status, _, text := e.raw("GET", "/vms", "")
			return status == 0 && strings.Contains(text, "deadline exceeded")
		}},
	} {
		if err := state.set(ctx, true); err != nil {
			t.Fatal(err)
		}
		if !state.answer() {
			t.Error("it answers all the same")
		}
		if err := state.set(ctx, false); err != nil {
			t.Fatal(err)
		}
		e.login()
		e.must("GET", "/vms", "")
	}
}

func TestMainServes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	write := func(text string) (Config, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadConfig(file)
	}
	if _, err := write(`{"port":1}`); err == nil || !strings.Contains(err.Error(), `unknown field "port"`) {
		t.Errorf("an unknown field: %v", err)
	}
	for _, text := range []string{`{"timings":{"clone":"x"}}`, `{"timings":{"x":"1s"}}`, `{"tokenIdle":"x"}`} {
		c, err := write(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := Main(t.Context(), c, nil); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	c, err := write(fmt.Sprintf(`{"controlSocket":%q,"certDir":%q,"tokenLifetime":"1h","timings":{"clone":"2s"},
		"inventory":{"templates":[{"name":"node","diskGiB":1}]}}`, filepath.Join(dir, "socket"), dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Main(ctx, c, nil) }()
	control := NewControl(c.ControlSocket)
	waitFor(t, func() bool { _, err := control.Info(ctx); return err == nil })
	if answer, err := control.Do(ctx, http.MethodGet, "/templates?search=name%3Dnode", ""); err != nil || !strings.Contains(answer, "<name>node</name>") {
		t.Errorf("its template: %v %s", err, answer)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAffinityLabels(t *testing.T) {
	e := newEngine(t)
	host := e.must("GET", "/hosts?search=name%3Dhost2", "").get("host").id()
	label := e.must("POST", "/affinitylabels", "<affinity_label><name>l</name></affinity_label>").id()
	e.must("POST", "/affinitylabels/"+label+"/hosts", "<host id='"+host+"'/>")
	for _, name := range []string{"a", "b", "c"} {
		id := e.vm(name, "")
		e.must("POST", "/vms/"+id+"/affinitylabels", "<affinity_label id='"+label+"'/>")
		e.up(id)
		if got := e.must("GET", "/vms/"+id, "").get("host").id(); got != host {
			t.Errorf("%s runs on %s, want %s", name, got, host)
		}
	}
	e.refuse("DELETE", "/affinitylabels/"+label, "", http.StatusConflict, "remove it from all entities first")
}
