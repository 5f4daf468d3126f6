package pvesim

import (
	"context"
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
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// Server is a simulated cluster with the API of its nodes.
type Server struct {
	// Cluster has the objects.
	Cluster *cluster.Cluster
	// URLs are those of the API of the nodes, in order, without /api2/json.
	URLs []string
	// CABundle is the CA to trust, in PEM, and Thumbprint the SHA-256 of the
	// certificate.
	CABundle, Thumbprint string

	opts   Options
	ctx    context.Context //nolint:containedctx // connections live as long as the server
	cancel context.CancelFunc
	wg     sync.WaitGroup
	nodes  []*endpoint
	ctl    *http.Server
	secret []byte

	mu      sync.Mutex
	timings map[string]time.Duration
	down    bool
	slow    time.Duration
	// hanging is closed when requests are answered again; nil while they are.
	hanging chan struct{}
	rules   []*rule
	counts  counts
	conns   map[net.Conn]*endpoint
}

// endpoint is the API of a node.
type endpoint struct {
	node string
	http *http.Server
}

// Start starts a cluster. It ends with ctx or Stop.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts = opts.withDefaults()
	own, err := splitTimings(opts.Timings)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, timings: own, secret: newSecret(), conns: map[net.Conn]*endpoint{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if s.Cluster, err = cluster.New(s.ctx, opts.Inventory, opts.Timings, opts.Guests); err != nil {
		s.cancel()
		return nil, err
	}
	if err := errors.Join(s.listen(), s.startControl()); err != nil {
		s.Stop()
		return nil, err
	}
	context.AfterFunc(s.ctx, s.close)
	return s, nil
}

// splitTimings removes the times of the server from timings, which are then those
// of the cluster.
func splitTimings(timings map[string]time.Duration) (map[string]time.Duration, error) {
	own := map[string]time.Duration{}
	for name, d := range timings {
		if _, ok := DefaultTimings()[name]; !ok {
			return nil, fmt.Errorf("no timing %q", name)
		}
		if name == TimeUnauthorized || name == TimeTicket {
			own[name] = d
			delete(timings, name)
		}
	}
	return own, nil
}

// listen starts the API of each node.
func (s *Server) listen() error {
	var listeners []net.Listener
	names := append([]string{"localhost", "127.0.0.1"}, s.opts.Names...)
	for i, node := range s.Cluster.Nodes() {
		address := "127.0.0.1:0"
		if i < len(s.opts.Listen) {
			address = s.opts.Listen[i]
		}
		listener, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listening for node %s: %w", node, err)
		}
		host, _, _ := net.SplitHostPort(listener.Addr().String())
		names = append(names, host, node)
		listeners = append(listeners, listener)
		s.URLs = append(s.URLs, "https://"+listener.Addr().String())
	}
	shown, err := identity.Load(s.opts.CertDir, names)
	if err != nil {
		return err
	}
	s.CABundle, s.Thumbprint = string(shown.CA), shown.Thumbprint()
	for i, node := range s.Cluster.Nodes() {
		e := &endpoint{node: node}
		e.http = &http.Server{
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(e, w, r) }),
			ReadHeaderTimeout: time.Minute,
			ErrorLog:          log.New(io.Discard, "", 0),
			ConnState:         func(conn net.Conn, state http.ConnState) { s.countConnection(e, conn, state) },
			// Nodes speak HTTP/1.1 only.
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		}
		s.nodes = append(s.nodes, e)
		secured := tls.NewListener(listeners[i], &tls.Config{
			Certificates: []tls.Certificate{shown.Certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
		s.wg.Go(func() { _ = e.http.Serve(secured) })
	}
	return nil
}

// Stop ends the server and its cluster.
func (s *Server) Stop() {
	s.cancel()
	s.close()
	s.Cluster.Stop()
	s.wg.Wait()
}

func (s *Server) close() {
	for _, e := range s.nodes {
		_ = e.http.Close()
	}
	if s.ctl != nil {
		_ = s.ctl.Close()
	}
}

// SetTiming changes a named time.
func (s *Server) SetTiming(name string, d time.Duration) error {
	s.mu.Lock()
	_, own := s.timings[name]
	if own {
		s.timings[name] = d
	}
	s.mu.Unlock()
	if own {
		return nil
	}
	return s.Cluster.SetTiming(name, d)
}

func (s *Server) timing(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timings[name]
}
