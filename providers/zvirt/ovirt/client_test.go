package ovirt

import (
	"context"
	"encoding/pem"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// open starts an engine and a client with a request counter.
func open(t *testing.T) (*ovirtsim.Server, *Client, *atomic.Int64) {
	t.Helper()
	return openMetered(t, func(string, string, string, time.Duration) {})
}

// openMetered reports each completed request.
func openMetered(t *testing.T, request func(_, _, _ string, _ time.Duration)) (*ovirtsim.Server, *Client, *atomic.Int64) {
	t.Helper()
	return openWith(t, ovirtsim.Options{}, request)
}

func openWith(t *testing.T, o ovirtsim.Options, request func(_, _, _ string, _ time.Duration)) (*ovirtsim.Server, *Client, *atomic.Int64) {
	t.Helper()
	engine, err := ovirtsim.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Stop)
	connections := &atomic.Int64{}
	c, err := NewClient(Endpoint{
		Server:   strings.TrimSuffix(strings.TrimPrefix(engine.URL, "https://"), apiPath),
		Username: ovirtsim.DefaultUsername, Password: ovirtsim.DefaultPassword, Trust: endpoints.Trust{CABundle: engine.CABundle},
	}, transport.Meter{
		Request:     request,
		Connections: func(change int) { connections.Add(int64(change)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return engine, c, connections
}

func get(ctx context.Context, c *Client, path ...string) error {
	var list List
	return c.Do(ctx, Request{Method: http.MethodGet, Path: path, Into: &list})
}

func TestTenRequestsUseOneConnection(t *testing.T) {
	engine, c, connections := open(t)
	for range 10 {
		if err := get(t.Context(), c, "vms"); err != nil {
			t.Fatal(err)
		}
	}
	if made := engine.Connections().Made; made != 1 || connections.Load() != 1 {
		t.Errorf("%d connections were made, %d counted", made, connections.Load())
	}
}

func TestOneLoginForManyRequests(t *testing.T) {
	engine, c, _ := open(t)
	for range 2 {
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				if err := get(t.Context(), c, "vms"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		engine.ExpireTokens()
	}
	if n := engine.Requests()["POST /sso/oauth/token"]; n != 2 {
		t.Errorf("%d logins instead of one at first and one after the token expired", n)
	}
	if made := engine.Connections().Made; made > transport.Parallel {
		t.Errorf("%d connections were made", made)
	}
}

// The engine responds to an action with an expired token with an HTML page.
func TestActionLogsInAgain(t *testing.T) {
	engine, c, _ := open(t)
	made := VM{}
	err := c.Do(t.Context(), Request{
		Method: http.MethodPost, Path: []string{"vms"}, Into: &made,
		Body: VM{Name: "vm", Cluster: &Object{Name: "Default"}, Template: &Object{Name: "Blank"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	engine.ExpireTokens()
	if err := c.Do(t.Context(), Request{Method: http.MethodPost, Path: []string{"vms", made.ID, "stop"}, Body: Action{}}); err != nil {
		t.Error(err)
	}
}

func TestLogout(t *testing.T) {
	engine, c, connections := open(t)
	if err := get(t.Context(), c, "vms"); err != nil {
		t.Fatal(err)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if engine.Tokens() != 0 || connections.Load() != 0 {
		t.Errorf("%d tokens and %d connections are left", engine.Tokens(), connections.Load())
	}
	if err := get(t.Context(), c, "vms"); err != nil {
		t.Errorf("after the logout: %v", err)
	}
}

func TestWrongPassword(t *testing.T) {
	_, c, _ := open(t)
	c.endpoint.Password = "s3cret"
	err := get(t.Context(), c, "vms")
	if !IsStatus(err, http.StatusUnauthorized) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), ovirtsim.DefaultUsername) {
		t.Errorf("got %v", err)
	}
}

func TestHangingEngine(t *testing.T) {
	engine, c, _ := open(t)
	engine.SetHanging(true)
	t.Cleanup(func() { engine.SetHanging(false) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := get(ctx, c, "vms"); !IsAmbiguous(err) {
		t.Errorf("got %v", err)
	}
}

func TestRequestIsEscaped(t *testing.T) {
	engine, c, _ := open(t)
	script := "a < b && c > \"d\" 'e' \u00e9\n\ttab"
	made := VM{}
	err := c.Do(t.Context(), Request{Method: http.MethodPost, Path: []string{"vms"}, Into: &made, Body: VM{
		Name: "vm", Cluster: &Object{Name: "Default"}, Template: &Object{Name: "Blank"}, Initialization: &Initialization{CustomScript: script},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, answer := engine.Do(http.MethodGet, "/vms/"+made.ID, "")
	var got VM
	if err := xml.Unmarshal([]byte(answer), &got); err != nil || got.Initialization == nil || got.Initialization.CustomScript != script {
		t.Errorf("got %+v, %v", got.Initialization, err)
	}
}

func TestUnsetFieldsAreNotSent(t *testing.T) {
	body, err := xml.Marshal(VM{Comment: "x", Cluster: Ref("1"), Template: Ref("")})
	if want := `<vm><comment>x</comment><cluster id="1"></cluster></vm>`; err != nil || string(body) != want {
		t.Errorf("got %s, %v\nwant %s", body, err, want)
	}
}

// An oversized response must not fill the memory.
func TestResponseIsBounded(t *testing.T) {
	var sent atomic.Int64
	engine := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tokenPath {
			_, _ = io.WriteString(w, `{"access_token":"t"}`)
			return
		}
		_, err := io.WriteString(w, "<vms><vm><name>")
		for part := strings.Repeat("a", 1<<20); err == nil && sent.Load() < 256<<20; {
			var n int
			n, err = io.WriteString(w, part)
			sent.Add(int64(n))
		}
	}))
	t.Cleanup(engine.Close)
	c := clientOf(t, engine)
	for path, limit := range map[string]int64{"vms": maxList, "vms/1": maxAnswer} {
		sent.Store(0)
		err := get(t.Context(), c, strings.Split(path, "/")...)
		if !IsDown(err) || !strings.Contains(err.Error(), "the engine's answer has more than") {
			t.Errorf("%s: got %v", path, err)
		}
		if sent.Load() > 2*limit {
			t.Errorf("%s: %d bytes were read", path, sent.Load())
		}
	}
}

// A redirect would send the password or the token to another server.
func TestRedirectIsRejected(t *testing.T) {
	for _, from := range []string{tokenPath, apiPath} {
		var requests atomic.Int32
		other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		t.Cleanup(other.Close)
		engine := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, from) {
				http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			_, _ = io.WriteString(w, `{"access_token":"t"}`)
		}))
		t.Cleanup(engine.Close)
		// Both servers have the same certificate.
		c := clientOf(t, engine)
		if err := get(t.Context(), c, "vms"); err == nil {
			t.Errorf("%s: a redirect counts as a response", from)
		}
		if n := requests.Load(); n != 0 {
			t.Errorf("%s: %d requests followed the redirect", from, n)
		}
	}
}

// clientOf returns a client of a test server.
func clientOf(t *testing.T, engine *httptest.Server) *Client {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: engine.Certificate().Raw})
	c, err := NewClient(Endpoint{Server: engine.Listener.Addr().String(), Trust: endpoints.Trust{CABundle: string(ca)}}, transport.Meter{
		Request: func(string, string, string, time.Duration) {}, Connections: func(int) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A list may take longer than the timeout while it makes progress; other requests
// may not.
func TestSlowResponses(t *testing.T) {
	const part = 100 * time.Millisecond
	engine := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tokenPath {
			_, _ = io.WriteString(w, `{"access_token": "t"}`)
			return
		}
		_, _ = io.WriteString(w, "<vms>")
		for range 10 {
			http.NewResponseController(w).Flush() //nolint:errcheck // the client may have gone
			timer := time.NewTimer(part)
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(w, "<vm/>")
			if r.URL.Query().Get("search") == "stalls" {
				<-r.Context().Done()
			}
		}
		_, _ = io.WriteString(w, "</vms>")
	}))
	t.Cleanup(engine.Close)
	c := clientOf(t, engine)
	c.timeout = 5 * part
	list := func(search string) error {
		var vms VMs
		err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: []string{"vms"}, Query: url.Values{"search": {search}}, Into: &vms})
		if err == nil && len(vms.VMs) != 10 {
			t.Errorf("%d VMs were read", len(vms.VMs))
		}
		return err
	}
	if err := list("all"); err != nil {
		t.Errorf("a list that makes progress: %v", err)
	}
	if err := list("stalls"); !IsDown(err) || !strings.Contains(err.Error(), "no response in time") {
		t.Errorf("a list that stalls: %v", err)
	}
	if err := get(t.Context(), c, "vms", "1"); !IsDown(err) {
		t.Errorf("another request that makes progress: %v", err)
	}
	c.longest = 5 * part
	if err := list("all"); !IsDown(err) {
		t.Errorf("a list that takes longer than the longest: %v", err)
	}
}
