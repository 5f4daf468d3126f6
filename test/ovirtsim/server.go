package ovirtsim

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/identity"
)

// apiPath is where the API begins.
const apiPath = "/ovirt-engine/api"

// Server is an engine. One lock protects all its data, so no request reads an
// incomplete object.
type Server struct {
	// URL is that of the API.
	URL string
	// CABundle is the authority to trust, in PEM.
	CABundle string

	// instance is the engine's own ID.
	instance string

	opts   Options
	clock  Clock
	guests Guests
	ctx    context.Context //nolint:containedctx // guests and timers live as long as the server
	cancel context.CancelFunc
	wg     sync.WaitGroup
	http   *http.Server
	ctl    *http.Server
	routes []route
	// byShape are the routes by method and number of parts.
	byShape map[shape][]*route

	mu     sync.Mutex
	users  []*user
	tokens map[string]*token
	down   bool
	slow   time.Duration
	// hanging is closed when requests are answered again; nil while they are.
	hanging     chan struct{}
	unreachable bool
	conns       map[net.Conn]struct{}
	rules       []*rule
	counts      counts
	store
}

// Start starts an engine. It ends with ctx or Stop.
func Start(ctx context.Context, opts Options) (*Server, error) {
	for name := range opts.Timings {
		if _, ok := DefaultTimings()[name]; !ok {
			return nil, fmt.Errorf("no timing %q", name)
		}
	}
	opts = opts.withDefaults()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opts.ListenAddress)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	host, _, _ := net.SplitHostPort(listener.Addr().String())
	shown, err := identity.Load(opts.CertDir, append([]string{host, "localhost", "127.0.0.1"}, opts.Names...))
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	s := &Server{
		URL:      "https://" + listener.Addr().String() + apiPath,
		CABundle: string(shown.CA),
		instance: newID(),
		opts:     opts,
		clock:    opts.Clock,
		guests:   opts.Guests,
		tokens:   map[string]*token{},
		conns:    map[net.Conn]struct{}{},
	}
	s.users = append(s.users, &user{UserSpec: UserSpec{Name: opts.Username, Password: opts.Password}, id: newID(), all: true, known: true})
	for _, spec := range opts.Users {
		s.users = append(s.users, &user{UserSpec: spec, id: newID(), known: !spec.Account})
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.routes = s.table()
	s.byShape = byShape(s.routes)
	if attached, ok := opts.Guests.(interface{ Attach(reports Reports) }); ok {
		attached.Attach(s)
	}
	s.mu.Lock()
	err = s.fill(opts.Inventory)
	s.addSuperUser()
	for _, u := range s.users {
		err = errors.Join(err, s.give(u))
	}
	s.changed()
	s.mu.Unlock()
	if err != nil {
		s.cancel()
		_ = listener.Close()
		return nil, err
	}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState:         s.countConnection,
	}
	// The web server in front of an engine speaks HTTP/1.1 only: a client's
	// requests at the same time take as many connections.
	secured := &expectListener{Listener: listener, config: &tls.Config{
		Certificates: []tls.Certificate{shown.Certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}}
	s.wg.Go(func() { _ = s.http.Serve(secured) })
	if err := s.startControl(); err != nil {
		s.Stop()
		return nil, err
	}
	context.AfterFunc(s.ctx, s.close)
	return s, nil
}

// Stop ends the server.
func (s *Server) Stop() {
	s.cancel()
	s.close()
	s.wg.Wait()
}

func (s *Server) close() {
	_ = s.http.Close()
	if s.ctl != nil {
		_ = s.ctl.Close()
	}
}

// after does f under the lock when d has passed.
func (s *Server) after(d time.Duration, f func()) {
	s.clock.AfterFunc(d, func() {
		if s.ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		s.changed()
	})
}

// when does f under the lock after a named time.
func (s *Server) when(name string, f func()) {
	s.after(s.opts.Timings[name], f)
}

// SetTiming changes a named time.
func (s *Server) SetTiming(name string, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.opts.Timings[name]; !ok {
		return fmt.Errorf("no timing %q", name)
	}
	s.opts.Timings[name] = d
	return nil
}

// newID makes an object's ID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// timestamp writes a time as the engine does.
func timestamp(t time.Time) string {
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}

var errStopped = errors.New("the server has stopped")
