package engine

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fairqueue"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// address is an address behind which one of several engines responds. They have
// no objects.
type address struct {
	mu sync.Mutex
	// engine is the ID of the engine that responds.
	engine string
	// failing is the number of requests for an engine's description that fail.
	failing int
	// logins is the number of tokens that were requested.
	logins int
	// tokens are the valid tokens of all engines, by token.
	tokens map[string]string
	// requests are the paths of the requests that an engine accepted.
	requests map[string][]string
}

func (a *address) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch path := strings.TrimPrefix(r.URL.Path, "/ovirt-engine"); path {
	case "/sso/oauth/token":
		a.logins++
		token := fmt.Sprintf("token-%d", a.logins)
		a.tokens[token] = a.engine
		fmt.Fprintf(w, `{"access_token":%q}`, token)
	case "/services/sso-logout":
		delete(a.tokens, r.FormValue("token"))
		_, _ = io.WriteString(w, "{}")
	default:
		if a.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] != a.engine {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		a.requests[a.engine] = append(a.requests[a.engine], path)
		switch {
		case path != "/api":
			_, _ = io.WriteString(w, "<"+strings.ReplaceAll(path[strings.LastIndex(path, "/")+1:], "affinitygroups", "affinity_groups")+"/>")
		case a.failing > 0:
			a.failing--
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprintf(w, "<api><product_info><instance_id>%s</instance_id></product_info></api>", a.engine)
		}
	}
}

// replace makes another engine respond. The first requests for its description
// fail.
func (a *address) replace(engine string, failing int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engine, a.failing = engine, failing
}

// tokensOf returns the number of valid tokens of an engine.
func (a *address) tokensOf(engine string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, of := range a.tokens {
		if of == engine {
			n++
		}
	}
	return n
}

// accepted returns the requests that an engine accepted for a path.
func (a *address) accepted(engine, path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.requests[engine]) - len(slices.DeleteFunc(slices.Clone(a.requests[engine]), func(p string) bool { return p == path }))
}

// listen starts the first engine at an address.
func listen(t *testing.T) (*address, ovirt.Endpoint) {
	t.Helper()
	a := &address{engine: "first", tokens: map[string]string{}, requests: map[string][]string{}}
	server := httptest.NewTLSServer(a)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return a, ovirt.Endpoint{Server: server.Listener.Addr().String(), Trust: endpoints.Trust{CABundle: string(ca)}}
}

// openIdle opens a session whose cache sends no request after its first ones.
func openIdle(t *testing.T, e ovirt.Endpoint) *Session {
	t.Helper()
	timeouts := DefaultTimeouts
	timeouts.Session.MinRetry, timeouts.Session.MaxRetry = 10*time.Millisecond, 20*time.Millisecond
	timeouts.Poll.Idle, timeouts.Poll.Groups, timeouts.Poll.AllClusters = time.Hour, time.Hour, time.Hour
	queue := fairqueue.New(0, "", func(key hypervisor.Key) string { return key.Namespace }, func(hypervisor.Key) {})
	s, err := Open(e, timeouts, queue, func(...hypervisor.Key) {}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(); <-s.Done() })
	if err := s.Ready(t.Context(), hypervisor.Key{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// disks is a request that the cache of a session never sends.
func disks() ovirt.Request {
	return ovirt.Request{Method: http.MethodGet, Path: []string{"disks"}, Into: &ovirt.List{}}
}

// A worker is the first whose token is not accepted, because another engine
// responds at the address. No request of the worker reaches that engine, its
// token is revoked, and the session opens again with the other engine's ID.
func TestWorkerMeetsAnotherEngine(t *testing.T) {
	a, endpoint := listen(t)
	s := openIdle(t, endpoint)
	a.replace("second", 0)
	if err := s.Do(t.Context(), disks()); err == nil || !strings.Contains(err.Error(), "another engine responds") {
		t.Errorf("got %v", err)
	}
	if n := a.accepted("second", "/api/disks"); n != 0 {
		t.Errorf("the other engine got %d requests", n)
	}
	if err := s.Ready(t.Context(), hypervisor.Key{}); err != nil {
		t.Fatal(err)
	}
	if id, _ := s.EngineInfo(); id != "second" {
		t.Errorf("the session is with %q", id)
	}
	if n := a.tokensOf("second"); n != 1 {
		t.Errorf("%d tokens of the other engine are valid", n)
	}
	if err := s.Do(t.Context(), disks()); err != nil || a.accepted("second", "/api/disks") != 1 {
		t.Errorf("after the session opened again: %v", err)
	}
}

// The description of the other engine cannot be read after a login. The next
// login, for a request without a stale token, reads it too.
func TestAnotherEngineFailsToDescribeItself(t *testing.T) {
	a, endpoint := listen(t)
	client, err := ovirt.NewClient(endpoint, transport.MeterOf(sessions.NewMeter(provider, endpoint.Server), http.StatusInternalServerError))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Identify(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.replace("second", 1)
	if err := client.Do(t.Context(), disks()); !ovirt.IsDown(err) {
		t.Errorf("the description cannot be read: %v", err)
	}
	if err := client.Do(t.Context(), disks()); !errors.Is(err, ovirt.ErrOtherEngine) {
		t.Errorf("the description can be read: %v", err)
	}
	if n := a.accepted("second", "/api/disks"); n != 0 {
		t.Errorf("the other engine got %d requests", n)
	}
	if n := a.tokensOf("second"); n != 0 {
		t.Errorf("%d tokens of the other engine are valid", n)
	}
	a.replace("second", 1)
	if _, err := client.Identify(t.Context()); !ovirt.IsDown(err) || a.tokensOf("second") != 0 {
		t.Errorf("the description cannot be read: %v, %d tokens are valid", err, a.tokensOf("second"))
	}
	if err := client.Do(t.Context(), disks()); !errors.Is(err, ovirt.ErrOtherEngine) {
		t.Errorf("before the engine was identified: %v", err)
	}
	if _, err := client.Identify(t.Context()); err != nil {
		t.Error(err)
	}
	if err := client.Do(t.Context(), disks()); err != nil {
		t.Errorf("after the engine was identified: %v", err)
	}
}
