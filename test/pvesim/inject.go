package pvesim

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// Fault makes requests fail. The zero value fails the next request of the API,
// logins not included, with a 500.
type Fault struct {
	// Method such as POST; any, if empty.
	Method string `json:"method,omitempty"`
	// Path below /api2/json, such as nodes/*/qemu/*/clone, * standing for one part;
	// any, if empty.
	Path string `json:"path,omitempty"`
	// Skip is how many requests go well before.
	Skip int `json:"skip,omitempty"`
	// Times it is to fail: once, if zero; until faults are cleared, if negative.
	Times int `json:"times,omitempty"`
	// Every hits one request of so many, the last of them; each, if zero.
	Every int `json:"every,omitempty"`
	// Status is the response's; 500, if zero.
	Status int `json:"status,omitempty"`
	// Reason is the text of the error, or of the failed task.
	Reason string `json:"reason,omitempty"`
	// After performs the request, and only its response is lost.
	After bool `json:"after,omitempty"`
	// Drop closes the connection instead of a response.
	Drop bool `json:"drop,omitempty"`
	// Hang sends no response until the client closes the connection.
	Hang bool `json:"hang,omitempty"`
	// Work accepts the request, and its task fails. A shutdown is ignored by the
	// guest, so its task fails after the timeout.
	Work bool `json:"work,omitempty"`
	// Pass performs the request and responds, after Delay.
	Pass bool `json:"pass,omitempty"`
	// Delay comes before the response.
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

// ClearFaults removes all injected faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// takeRule finds the fault for a request, if there is one.
func (s *Server) takeRule(method, name string) *rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.rules {
		if f.Method != "" && f.Method != method || !f.concerns(name) {
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

// concerns returns whether a fault applies to a path.
func (f *rule) concerns(name string) bool {
	if f.Path == "" {
		return "/"+name != ticketPath
	}
	ok, _ := path.Match(f.Path, name)
	return ok
}

// before returns whether the request must not be performed.
func (f *rule) before() bool { return !f.After && !f.Work && !f.Pass }

// doomed returns the text that the task of the request must fail with.
func (f *rule) doomed() string {
	if f == nil || !f.Work {
		return ""
	}
	if f.Reason == "" {
		return "simulated failure"
	}
	return f.Reason
}

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
	refused := &schema.Error{Status: f.Status, Message: f.Reason + "\n"}
	if refused.Status == 0 {
		refused.Status = http.StatusInternalServerError
	}
	if f.Reason == "" {
		refused.Message = http.StatusText(refused.Status) + "\n"
	}
	respond(w, nil, refused)
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

// unreachable returns whether a node does not answer, and delays a response.
func (s *Server) unreachable(e *endpoint, r *http.Request) bool {
	s.mu.Lock()
	down, slow, hanging := s.down, s.slow, s.hanging
	s.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-s.ctx.Done():
		case <-r.Context().Done():
			return true
		}
	}
	if slow > 0 {
		pause(s.ctx, r, slow)
	}
	return down || !s.Cluster.Online(e.node)
}

// SetDown stops the API of all nodes, or starts it. VMs and tasks continue.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		s.reset("")
	}
}

// SetOnline changes whether a node is online.
func (s *Server) SetOnline(node string, online bool) error {
	if err := s.Cluster.SetOnline(node, online); err != nil || online {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset(node)
	return nil
}

// reset resets the connections of a node, or of all nodes.
func (s *Server) reset(node string) {
	for conn, e := range s.conns {
		if node == "" || e.node == node {
			resetConn(conn)
		}
	}
}

func resetConn(conn net.Conn) {
	raw := conn
	if secured, ok := conn.(*tls.Conn); ok {
		raw = secured.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}

// SetSlow delays every response.
func (s *Server) SetSlow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// SetHanging delays all responses, or ends the delay.
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

// counts are the requests so far.
type counts struct {
	requests    map[string]int
	connections int
}

func (s *Server) count(method, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts.requests == nil {
		s.counts.requests = map[string]int{}
	}
	s.counts.requests[method+" /"+name]++
}

// Requests are the requests so far, by method and path with names for IDs.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	maps.Copy(out, s.counts.requests)
	return out
}

// ResetRequests resets the counters of requests and connections.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = counts{}
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

func (s *Server) countConnection(e *endpoint, conn net.Conn, state http.ConnState) {
	online := s.Cluster.Online(e.node)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.counts.connections++
		s.conns[conn] = e
		if s.down || !online {
			resetConn(conn)
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
	case http.StateActive, http.StateIdle:
	}
}

// Do performs a request of root, without the client under test: it needs no
// ticket, is not counted, and no injected fault applies to it. The path is below
// /api2/json. It is performed by the node that the path names.
func (s *Server) Do(ctx context.Context, method, target string, params map[string]any) (any, error) {
	return s.Cluster.Outside(ctx, method, target, params)
}
