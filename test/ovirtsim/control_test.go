package ovirtsim

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func TestControl(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control")
	e := newEngine(t, func(o *Options) { o.ControlSocket = socket })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	steer := func(method, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://control"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close() //nolint:errcheck // it was only read
		data, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(data)
	}
	steer("POST", "/faults", `{"method":"GET","path":"vms","status":503}`)
	if status, _, _ := e.raw("GET", "/vms", ""); status != http.StatusServiceUnavailable {
		t.Errorf("an injected fault: %d", status)
	}
	if _, body := steer("GET", "/requests", ""); !strings.Contains(body, `"GET /vms":1`) {
		t.Errorf("requests: %s", body)
	}
	if status, _ := steer("PUT", "/timings", `{"name":"none","time":"1s"}`); status != http.StatusBadRequest {
		t.Errorf("an unknown timing: %d", status)
	}
	steer("PUT", "/hosts/host1", `{"status":"maintenance"}`)
	if status := e.must("GET", "/hosts?search=name%3Dhost1", "").str("host/status"); status != hostMaintenance {
		t.Errorf("the host is %s", status)
	}
	id := e.vm("a", "")
	e.up(id)
	steer("PUT", fmt.Sprintf("/vms/%s/addresses", id), `[{"name":"eth0","mac":"56:6f:1a:00:00:01","addresses":["10.0.0.5/24"]}]`)
	if address := e.must("GET", "/vms/"+id+"/reporteddevices", "").str("reported_device/ips/ip/address"); address != "10.0.0.5" {
		t.Errorf("reported: %q", address)
	}
	steer("DELETE", "/tokens", "")
	if status, _, _ := e.raw("GET", "/vms", ""); status != http.StatusUnauthorized {
		t.Errorf("sessions are left: %d", status)
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
