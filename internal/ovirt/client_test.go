package ovirt

import (
	"context"
	"encoding/pem"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// open starts an engine and a client of it that counts.
func open(t *testing.T) (*ovirtsim.Server, *Client, *atomic.Int64) {
	t.Helper()
	return openMetered(t, func(string, string, string, time.Duration) {})
}

// openMetered tells of each request that was answered.
func openMetered(t *testing.T, request func(_, _, _ string, _ time.Duration)) (*ovirtsim.Server, *Client, *atomic.Int64) {
	t.Helper()
	engine, err := ovirtsim.Start(t.Context(), ovirtsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Stop)
	connections := &atomic.Int64{}
	c, err := NewClient(Endpoint{
		Server:   strings.TrimSuffix(strings.TrimPrefix(engine.URL, "https://"), apiPath),
		Username: ovirtsim.DefaultUsername, Password: ovirtsim.DefaultPassword, Trust: Trust{CABundle: engine.CABundle},
	}, Meter{
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

func TestTenRequestsTakeOneConnection(t *testing.T) {
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
		t.Errorf("%d logins instead of one at first and one when the token was gone", n)
	}
	if made := engine.Connections().Made; made > parallel {
		t.Errorf("%d connections were made", made)
	}
}

// An action with a token that has run out is answered with a page.
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

func TestWhatIsSentIsEscaped(t *testing.T) {
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

func TestWhatIsNotSaidIsNotSent(t *testing.T) {
	body, err := xml.Marshal(VM{Comment: "x", Cluster: Ref("1"), Template: Ref("")})
	if want := `<vm><comment>x</comment><cluster id="1"></cluster></vm>`; err != nil || string(body) != want {
		t.Errorf("got %s, %v\nwant %s", body, err, want)
	}
}

// An engine that sends more than any engine would must not fill the memory.
func TestAnswerIsBounded(t *testing.T) {
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
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: engine.Certificate().Raw})
	c, err := NewClient(Endpoint{Server: engine.Listener.Addr().String(), Trust: Trust{CABundle: string(ca)}}, Meter{
		Request: func(string, string, string, time.Duration) {}, Connections: func(int) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, limit := range map[string]int64{"vms": maxList, "vms/1": maxAnswer} {
		sent.Store(0)
		err = get(t.Context(), c, strings.Split(path, "/")...)
		if !IsDown(err) || !strings.Contains(err.Error(), "the engine's answer has more than") {
			t.Errorf("%s: got %v", path, err)
		}
		if sent.Load() > 2*limit {
			t.Errorf("%s: %d bytes were read", path, sent.Load())
		}
	}
}
