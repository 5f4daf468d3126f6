package ovirtsim

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// Fault makes requests fail. The zero value hits every request of the API
// once with a 500.
type Fault struct {
	// Method such as POST; any, if empty.
	Method string `json:"method,omitempty"`
	// Path below the API, such as vms/*/start, * standing for one part; any of
	// the API, if empty. Sessions begin at sso/oauth/token and end at
	// services/sso-logout.
	Path string `json:"path,omitempty"`
	// Skip is how many requests go well before.
	Skip int `json:"skip,omitempty"`
	// Times it is to fail: once, if zero; until faults are cleared, if negative.
	Times int `json:"times,omitempty"`
	// Every hits one request of so many, the last of them; each, if zero.
	Every int `json:"every,omitempty"`
	// Status is the answer's; 500, if zero.
	Status int `json:"status,omitempty"`
	// Reason and Detail are the fault's words; without a reason the answer is
	// the page of a web server in front of the engine.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// After makes the request take place, and only its answer is lost.
	After bool `json:"after,omitempty"`
	// Drop closes the connection instead of answering.
	Drop bool `json:"drop,omitempty"`
	// Hang sends no response until the client closes the connection.
	Hang bool `json:"hang,omitempty"`
	// Work accepts the request and makes the started operation fail: a copy of
	// disks, an extension, a boot. The shutdown or power-off of a VM does not
	// end, as with a guest that hangs.
	Work bool `json:"work,omitempty"`
	// Delay comes before the answer.
	Delay time.Duration `json:"delay,omitempty"`
}

// rule is an injected fault in use.
type rule struct {
	Fault

	left, met int
}

// Inject makes requests fail.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, &rule{Fault: f, left: max(f.Times, 1)})
}

// ClearFaults forgets all injected faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// takeRule finds the fault for a request, if there is one.
func (s *Server) takeRule(r *http.Request, parts []string) *rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.rules {
		if f.Method != "" && f.Method != r.Method {
			continue
		}
		if !f.concerns(parts) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.met++; f.Every > 1 && f.met%f.Every != 0 {
			continue
		}
		if f.left--; f.left == 0 && f.Times >= 0 {
			s.rules = append(s.rules[:i:i], s.rules[i+1:]...)
		}
		return f
	}
	return nil
}

// concerns reports whether a fault applies to a path.
func (f *rule) concerns(parts []string) bool {
	if f.Path == "" {
		return !sessionPart[first(parts)]
	}
	ok, _ := path.Match(f.Path, strings.Join(parts, "/"))
	return ok
}

// sessionPart is the prefix of the paths outside of the API.
var sessionPart = map[string]bool{"sso": true, "services": true}

// answer fails a request.
func (f *rule) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	if f.Delay > 0 {
		pause(ctx, r, f.Delay)
	}
	if f.Hang {
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	}
	if f.Drop || f.Hang {
		panic(http.ErrAbortHandler)
	}
	status := f.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if f.Reason == "" {
		writeHTML(w, status, fmt.Sprintf("%d %s", status, http.StatusText(status)), http.StatusText(status))
		return
	}
	_, body := failed(&fault{status: status, reason: f.Reason, detail: f.Detail}, false)
	if parts := split(r.URL.Path); r.Method == http.MethodPost && verbs[parts[len(parts)-1]] {
		_, body = failed(&fault{status: status, reason: f.Reason, detail: f.Detail}, true)
	}
	w.Header().Set("Content-Type", "application/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.bytes())
}

func pause(ctx context.Context, r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.Context().Done():
	}
}

// unavailable answers for an engine that is restarting, and slows answers.
func (s *Server) unavailable(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	down, slow, hanging := s.down, s.slow, s.hanging
	s.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-s.ctx.Done():
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	if slow > 0 {
		pause(s.ctx, r, slow)
	}
	if down {
		writeHTML(w, http.StatusServiceUnavailable, "503 Service Unavailable",
			"The server is temporarily unable to service your request due to maintenance downtime or capacity problems. Please try again later.")
	}
	return down
}

// SetDown stops the engine, but not the web server in front of it. Sessions do
// not outlive a stop; VMs and tasks go on.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		clear(s.tokens)
	}
}

// Restart takes the engine down for a while.
func (s *Server) Restart(d time.Duration) {
	s.SetDown(true)
	s.after(d, func() { s.down = false })
}

// SetSlow makes every answer take a while.
func (s *Server) SetSlow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// SetHanging delays all responses, or ends the delay: then the responses are
// sent, if the clients still wait.
func (s *Server) SetHanging(hanging bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case hanging && s.hanging == nil:
		s.hanging = make(chan struct{})
	case !hanging && s.hanging != nil:
		close(s.hanging)
		s.hanging = nil
	}
}

// SetUnreachable cuts all connections and resets new ones, or ends that.
func (s *Server) SetUnreachable(unreachable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreachable = unreachable
	if unreachable {
		for conn := range s.conns {
			reset(conn)
		}
	}
}

// reset closes a connection so that the peer sees an error, not an end.
func reset(conn net.Conn) {
	raw := conn
	if secured, ok := conn.(*expectConn); ok {
		raw = secured.raw
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}

// Do performs a request of another user, without the client under test: it
// needs no session, is not counted, and no injected fault applies to it. The
// path is relative to the API, such as /vms?search=name%3Da.
func (s *Server) Do(method, target, body string) (status int, answer string) {
	location, err := url.Parse(target)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	var parsed *elem
	var bodyErr error
	if body != "" {
		parsed, bodyErr = parseElem(strings.NewReader(body))
	}
	rt, args, known := s.find(method, split(location.Path))
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &request{method: method, args: args, query: location.Query(), body: parsed, user: s.users[0]}
	q.follow = parseFollow(q.query.Get("follow"))
	status, reply := s.perform(rt, q, known, bodyErr)
	return status, string(reply)
}

// counts are the requests so far.
type counts struct {
	requests    map[string]int
	connections int
	followed    int
}

// Requests are the requests so far, by method and path with {} for IDs.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	maps.Copy(out, s.counts.requests)
	return out
}

// countFollowed adds the objects of which a request had a link followed. The caller
// holds the lock.
func (s *Server) countFollowed(q *request) { s.counts.followed += q.followed }

// Followed is how many objects the engine read to follow links, since the start
// or the last reset: each is a request to its database.
func (s *Server) Followed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts.followed
}

// Connections are the connections of clients.
type Connections struct {
	// Made is how many there were since the start or the last reset.
	Made int `json:"made"`
	// Open is how many there are now.
	Open int `json:"open"`
}

// Connections counts the connections of clients.
func (s *Server) Connections() Connections {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Connections{Made: s.counts.connections, Open: len(s.conns)}
}

// ResetRequests counts from zero again, requests and connections.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = counts{}
}

// pattern returns the key by which requests are counted.
func pattern(rt *route, parts []string) string {
	if rt != nil {
		return "/" + rt.path
	}
	return "/" + strings.Join(parts, "/")
}

func (s *Server) count(method string, rt *route, parts []string) {
	name := pattern(rt, parts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts.requests == nil {
		s.counts.requests = map[string]int{}
	}
	s.counts.requests[method+" "+name]++
}

func (s *Server) countConnection(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.counts.connections++
		s.conns[conn] = struct{}{}
		if s.unreachable {
			reset(conn)
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
	case http.StateActive, http.StateIdle:
	}
}
