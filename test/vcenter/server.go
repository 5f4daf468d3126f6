package vcenter

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/identity"
)

// maxBody is more than any request of a client can be.
const maxBody = 64 << 20

// requestMark ties a call inside the simulator to its HTTP request: the User-
// Agent is the only thing the simulator copies from one to the other.
const requestMark = " request="

// Server is a running vCenter.
type Server struct {
	// CABundle is the PEM of the authority that signed the certificate.
	CABundle []byte
	// Thumbprint is the SHA-256 of the certificate, as AA:BB:...
	Thumbprint string
	// Address is the host:port it listens on.
	Address string

	opts     Options
	model    *simulator.Model
	svc      *simulator.Service
	identity *identity.Identity
	ops      *operations
	watch    *watch
	delays   *delays
	counts   *counts
	faults   *faults
	queue    *queue
	macs     atomic.Uint32
	hosts    atomic.Uint32
	tasks    atomic.Int64
	// isUser reports whether a login is that of a user of Single Sign-On.
	isUser func(*types.Login) bool

	// templateItems are the VMs that library items are, by the items' IDs.
	templateItems sync.Map
	deploying     sync.Mutex

	// hidden are objects the account does not see. Calls read it while another
	// holds world, so the map is replaced and never changed.
	hidden atomic.Pointer[map[ref]bool]

	// world protects the inventory: each reader and writer holds it.
	world sync.Mutex
	// busy are VMs with a task under way. Covered by world.
	busy map[string]string
	// fullHosts take no clones. Covered by world.
	fullHosts map[ref]bool

	sessionsMu sync.Mutex
	sessions   map[string]*simulator.Context

	// account is the one user, by name and password.
	account atomic.Pointer[url.Userinfo]
	// role has the privileges of the account; all, if it is nil.
	role atomic.Pointer[map[string]bool]

	requestID atomic.Int64
	requests  sync.Map // of string to context.Context

	violations violations
	// latencies are those of single methods.
	latencies    sync.Map
	disturbed    disturbed
	interruption interruption
	taskCounter  taskCounter

	listener *gate
	http     *http.Server
	control  *http.Server

	ctx    context.Context //nolint:containedctx // the server's lifetime, which its tasks outlive calls by
	cancel context.CancelFunc
	wg     sync.WaitGroup
	stop   sync.Once
}

// Start starts a vCenter. It runs until ctx ends or Stop is called.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts.setDefaults()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opts.ListenAddress)
	if err != nil {
		return nil, fmt.Errorf("listening for vCenter clients: %w", err)
	}
	s := &Server{
		opts:      opts,
		Address:   listener.Addr().String(),
		delays:    newDelays(opts.Delays),
		counts:    newCounts(),
		faults:    newFaults(),
		queue:     newQueue(opts.ClonesPerHost, opts.ClonesPerDatastore),
		busy:      map[string]string{},
		fullHosts: map[ref]bool{},
		sessions:  map[string]*simulator.Context{},
		listener:  newGate(listener),
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.hidden.Store(&map[ref]bool{})
	s.account.Store(url.UserPassword(opts.Username, opts.Password))
	s.watch = newWatch(s)
	s.watch.delay = opts.UpdateDelay
	if err := s.start(); err != nil {
		s.cancel()
		return nil, errors.Join(err, listener.Close())
	}
	context.AfterFunc(ctx, s.Stop)
	return s, nil
}

func (s *Server) start() error {
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		return fmt.Errorf("reading the listen address: %w", err)
	}
	names := append([]string{host, "127.0.0.1", "localhost"}, s.opts.Names...)
	if s.identity, err = identity.Load(s.opts.CertDir, names); err != nil {
		return err
	}
	s.CABundle = s.identity.CA
	s.Thumbprint = s.identity.Thumbprint()

	if err := s.buildInventory(); err != nil {
		return fmt.Errorf("building the inventory: %w", err)
	}
	s.ops = newOperations(s)
	s.svc.Context.Map.Handler = s.route
	if guests, ok := s.opts.Guests.(interface{ Attach(Reports) }); ok {
		guests.Attach(s)
	}

	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          log.New(io.Discard, "", 0), // handshakes cut off by tests
	}
	if err := s.startControl(); err != nil {
		s.model.Remove()
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{s.identity.Certificate}, MinVersion: tls.VersionTLS12}
	s.wg.Go(func() { _ = s.http.Serve(tls.NewListener(s.listener, config)) })
	return nil
}

// Stop ends all calls and tasks and frees everything. It may be repeated.
func (s *Server) Stop() {
	s.stop.Do(func() {
		s.cancel()
		_ = s.http.Close()
		if s.control != nil {
			_ = s.control.Close()
		}
		s.wg.Wait()
		s.world.Lock()
		defer s.world.Unlock()
		s.model.Remove()
	})
}

// URL is where the SOAP API is, without credentials.
func (s *Server) URL() *url.URL {
	return &url.URL{Scheme: "https", Host: s.Address, Path: vim25.Path}
}

// Userinfo are the credentials that are let in.
func (s *Server) Userinfo() *url.Userinfo { return s.account.Load() }

// SetTaskDelay sets the duration of the tasks of a method, such as
// CloneVM_Task, from now on; "*" stands for all methods that were not set.
func (s *Server) SetTaskDelay(method string, delay time.Duration) {
	s.delays.set(method, delay)
}

// SetDown cuts all connections and resets new ones until it is called with
// false. Tasks go on.
func (s *Server) SetDown(down bool) {
	s.listener.setDown(down)
}

// SetHanging makes the server take requests and answer none of them until it
// is called with false, when it answers them all.
func (s *Server) SetHanging(hanging bool) {
	s.listener.setHanging(hanging)
}

// Requests are the calls since the start or the last reset, by method. Long
// polls are counted apart.
func (s *Server) Requests() map[string]int {
	return s.counts.all().Methods
}

// RequestsBySession are the calls by session; those without one are under "".
func (s *Server) RequestsBySession() map[string]map[string]int {
	return s.counts.all().Sessions
}

// LongPolls counts the calls of WaitForUpdatesEx.
func (s *Server) LongPolls() int {
	return s.counts.all().LongPolls
}

// ResetRequests resets the counters of requests.
func (s *Server) ResetRequests() {
	s.counts.reset()
}

// nfcPath is where clients upload the disks of an OVA. A lease, not a session,
// admits them.
const nfcPath = "/nfc/"

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.listener.wait(r.Context()) {
		return
	}
	if s.opts.Latency > 0 && !s.sleep(s.opts.Latency) {
		return
	}
	if strings.HasPrefix(r.URL.Path, nfcPath) {
		simulator.ServeNFC(w, r)
		return
	}
	if isREST(r.URL.Path) {
		s.disturb(w, r, restMethod(r), func(w http.ResponseWriter) { s.serveREST(w, r) })
		return
	}
	if r.Method != http.MethodPost || (!strings.HasPrefix(r.URL.Path, vim25.Path) && r.URL.Path != pbm.Path) {
		s.world.Lock()
		defer s.world.Unlock()
		s.svc.ServeMux.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "reading the request", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	method := soapMethod(body)
	s.counts.add(method, sessionKey(r))
	if latency, ok := s.latencies.Load(method); ok && !s.sleep(latency.(time.Duration)) {
		return
	}
	if err := s.checkRequest(r, body); err != nil {
		s.reject(w, err)
		return
	}
	s.disturb(w, r, method, func(w http.ResponseWriter) { s.serveSOAP(w, r, method) })
}

func (s *Server) serveSOAP(w http.ResponseWriter, r *http.Request, method string) {
	// Encoding reads the inventory too, so the response is complete before the
	// lock is released, and a slow client does not block other clients.
	answer := &bufferedWriter{header: w.Header(), status: http.StatusOK}
	if method == methodWaitForUpdates {
		s.serveLongPoll(answer, r)
	} else {
		s.serveLocked(answer, r, method)
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes())
}

func (s *Server) serveLocked(w http.ResponseWriter, r *http.Request, method string) {
	s.world.Lock()
	defer s.world.Unlock()
	s.svc.ServeSDK(w, r)
	if !readsOnly(method) {
		s.watch.touchAll()
	}
}

// serveLongPoll runs without the lock; waiting takes it when it looks.
func (s *Server) serveLongPoll(w http.ResponseWriter, r *http.Request) {
	id := strconv.FormatInt(s.requestID.Add(1), 10)
	s.requests.Store(id, r.Context())
	defer s.requests.Delete(id)
	r.Header.Set("User-Agent", r.UserAgent()+requestMark+id)
	s.svc.ServeSDK(w, r)
}

// requestContext is the context of the HTTP request behind a long poll.
func (s *Server) requestContext(ctx *simulator.Context) context.Context {
	if ctx.Session != nil {
		if _, id, ok := strings.Cut(ctx.Session.UserAgent, requestMark); ok {
			if found, ok := s.requests.Load(id); ok {
				return found.(context.Context)
			}
		}
	}
	return s.ctx
}

// locked runs f with the inventory to itself. Each run has a context of its
// own, because the simulator's locks belong to contexts.
func (s *Server) locked(f func(*simulator.Context)) {
	s.world.Lock()
	defer s.world.Unlock()
	f(s.newContext())
}

func (s *Server) newContext() *simulator.Context {
	ctx := *s.svc.Context
	return &ctx
}

// bufferedWriter keeps an answer until the inventory is free again.
type bufferedWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *bufferedWriter) Header() http.Header         { return b.header }
func (b *bufferedWriter) WriteHeader(status int)      { b.status = status }
func (b *bufferedWriter) Write(p []byte) (int, error) { return b.body.Write(p) }

func sessionKey(r *http.Request) string {
	cookie, err := r.Cookie(soap.SessionCookieName)
	if err != nil {
		return ""
	}
	return cookie.Value
}
