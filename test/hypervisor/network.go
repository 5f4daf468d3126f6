package hypervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// network is the network between a manager and a simulator: a proxy with a
// certificate of its own. It counts requests, and loses them on demand.
type network struct {
	server *httptest.Server
	name   func(*http.Request, []byte) (string, bool)

	mu sync.Mutex
	// target is the address of the simulator.
	target string
	conns  map[net.Conn]struct{}
	// down resets all connections. resumed is not nil while responses are
	// delayed, and is closed at the end of that.
	down    bool
	resumed chan struct{}
	counts  map[string]int
	// opened is the number of connections since the last reset.
	opened int
	// sent are the requests since the last reset, changes the number of those that
	// change something, and polls the numbers of reads since the last of these, by name.
	sent    []request
	changes int
	polls   map[string]int
	loss    *loss
	// storm is set while every few requests fail; met is the number of requests in
	// storms.
	storm bool
	met   int
}

// request is a request that was sent: its name and its number among the requests with
// that name. The number of polls depends on the load of the computer, so a read has its
// number among the reads since the last change, and the number of changes before it.
type request struct {
	name    string
	nth     int
	read    bool
	changes int
}

func (r request) String() string {
	if r.read {
		return fmt.Sprintf("%s#%d after %d", r.name, r.nth, r.changes)
	}
	return fmt.Sprintf("%s#%d", r.name, r.nth)
}

// isReached reports whether sent is r in another run. If that run has fewer polls, the
// next read with the name is.
func (r request) isReached(sent request) bool {
	switch {
	case r.name != sent.name:
		return false
	case r.read:
		return sent.changes > r.changes || sent.changes == r.changes && sent.nth >= r.nth
	}
	return sent.nth == r.nth
}

// loss is a request that gets no response.
type loss struct {
	request

	// after is set if the simulator executes the request.
	after bool
	// crash is set if the connection is cut at the request. No later request
	// reaches the simulator.
	crash bool
	// status is the status of a response from a server in between, if it is set.
	status int
	// reached is closed when the request is lost.
	reached chan struct{}
}

// isReached reports whether the request was lost.
func (l *loss) isReached() bool {
	select {
	case <-l.reached:
		return true
	default:
		return false
	}
}

func newNetwork(t *testing.T, target string, name func(*http.Request, []byte) (string, bool)) *network {
	t.Helper()
	n := &network{name: name, target: target, conns: map[net.Conn]struct{}{}, counts: map[string]int{}, polls: map[string]int{}}
	n.server = httptest.NewUnstartedServer(n)
	n.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	n.server.Listener = &listener{Listener: n.server.Listener, network: n}
	n.server.StartTLS()
	t.Cleanup(func() {
		n.setDown(true)
		n.setHanging(false)
		n.server.Close()
	})
	return n
}

// address is the host and port of the proxy.
func (n *network) address() string { return n.server.Listener.Addr().String() }

// caBundle verifies the certificate of the proxy.
func (n *network) caBundle() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.server.Certificate().Raw}))
}

// thumbprint is the SHA-256 of the certificate, as AA:BB:...
func (n *network) thumbprint() string {
	sum := sha256.Sum256(n.server.Certificate().Raw)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

// setTarget replaces the simulator at the address.
func (n *network) setTarget(target string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.target = target
	n.cut()
}

// setDown resets all connections until it is called with false.
func (n *network) setDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	if down {
		n.cut()
	}
}

// cut resets all connections.
func (n *network) cut() {
	for conn := range n.conns {
		reset(conn)
	}
	clear(n.conns)
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// setHanging delays all requests until it is called with false.
func (n *network) setHanging(hanging bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case hanging && n.resumed == nil:
		n.resumed = make(chan struct{})
	case !hanging && n.resumed != nil:
		close(n.resumed)
		n.resumed = nil
	}
}

// lose sets the request that is lost next, and forgets the previous requests.
func (n *network) lose(l *loss) {
	n.reset()
	n.mu.Lock()
	defer n.mu.Unlock()
	if l != nil {
		l.reached = make(chan struct{})
	}
	n.loss = l
}

// restore ends the loss and the outage.
func (n *network) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss, n.down = nil, false
}

// isDown reports whether no request reaches the simulator.
func (n *network) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// reset forgets the previous requests.
func (n *network) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent, n.opened, n.changes = nil, 0, 0
	clear(n.counts)
	clear(n.polls)
}

// requests returns the requests since the last reset, in their order.
func (n *network) requests() []request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

// count returns the numbers of requests since the last reset, by name.
func (n *network) count() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.counts)
}

// connections returns the number of connections since the last reset.
func (n *network) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.opened
}

// writes returns the number of requests since the last reset that change
// something.
func (n *network) writes() (count int) {
	for _, r := range n.requests() {
		if !r.read {
			count++
		}
	}
	return count
}

// ServeHTTP passes a request to the simulator.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the documented way to cut a connection
	}
	target, lost := n.admit(r, body)
	if lost != nil && lost.status != 0 {
		w.WriteHeader(lost.status)
		return
	}
	if lost != nil && !lost.after {
		n.end(lost)
	}
	ctx := r.Context()
	if lost != nil {
		ctx = context.WithoutCancel(ctx)
	}
	res, answer, err := forward(ctx, r, body, target) //nolint:bodyclose // forward reads and closes it
	if lost != nil {
		n.end(lost)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(answer)
}

// admit counts a request, and returns the simulator for it and whether it gets
// lost.
func (n *network) admit(r *http.Request, body []byte) (string, *loss) {
	name, read := n.name(r, body)
	n.mu.Lock()
	resumed := n.resumed
	n.mu.Unlock()
	if resumed != nil {
		select {
		case <-resumed:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		panic(http.ErrAbortHandler)
	}
	if name == "" {
		return n.target, nil
	}
	sent := n.record(name, read)
	if n.storm {
		return n.target, n.fault()
	}
	if n.loss == nil || !n.loss.request.isReached(sent) {
		return n.target, nil
	}
	lost := n.loss
	n.loss = nil
	if lost.crash {
		// Requests that arrive while this one is executed come too late.
		n.down = true
	}
	return n.target, lost
}

// record records a request. The caller holds the lock.
func (n *network) record(name string, read bool) request {
	n.counts[name]++
	sent := request{name: name, nth: n.counts[name], read: read, changes: n.changes}
	if read {
		n.polls[name]++
		sent.nth = n.polls[name]
	} else {
		n.changes++
		clear(n.polls)
	}
	n.sent = append(n.sent, sent)
	return sent
}

// end cuts the connection of a lost request.
func (n *network) end(lost *loss) {
	if lost.crash {
		n.setDown(true)
	}
	close(lost.reached)
	panic(http.ErrAbortHandler)
}

var transport = &http.Transport{
	TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
	DisableCompression: true,
	MaxIdleConns:       64, MaxIdleConnsPerHost: 64,
}

// forward sends a request to the simulator and returns the response and its
// body.
func forward(ctx context.Context, r *http.Request, body []byte, target string) (*http.Response, []byte, error) {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = "https", target, target, ""
	out.Body, out.ContentLength = http.NoBody, 0
	if len(body) > 0 {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	res, err := transport.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	return res, answer, err
}

// listener resets connections while the network is down.
type listener struct {
	net.Listener

	network *network
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.network.accept(conn) {
			return conn, nil
		}
	}
}

// accept records a connection, or resets it.
func (n *network) accept(conn net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		reset(conn)
		return false
	}
	n.conns[conn] = struct{}{}
	n.opened++
	return true
}
