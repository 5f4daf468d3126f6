package vcenter

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	vimsession "github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
)

// maxCallers is the number of machines that wait for a session that is being
// opened.
const maxCallers = 2

// Stream reads the objects of a vCenter and keeps them up to date, over
// one login.
type Stream interface {
	// Read reads all objects.
	Read(ctx context.Context) error
	// Watch applies changes until that fails. Its polls end with watching, and
	// further requests with ctx.
	Watch(ctx, watching context.Context) error
}

// Options are the parameters of a session.
type Options struct {
	Timeouts Timeouts
	Wrap     Wrap
	// Logins limits the rejected logins at all vCenters.
	Logins *sessions.LoginLimiter
	// OpenStream opens the stream of a login. The stream calls onResponse after
	// each response.
	OpenStream func(ctx context.Context, c *vim25.Client, onResponse func()) (Stream, error)
	// Requeue and AvailabilityChanged are those of sessions.Options.
	Requeue             func(hypervisor.Key)
	AvailabilityChanged func()
	// Closed is called once, when the session has been stopped.
	Closed func()
}

// Session is one login at one vCenter. One goroutine opens it, keeps it
// open and streams from it.
type Session struct {
	*sessions.Session
	Options

	Endpoint Endpoint
	conn     *connection
	rest     restAPI
	// opened is a login whose objects have to be read again. Only the goroutine
	// of the session uses it.
	opened *login
	// started is closed once the embedded Session is set.
	started chan struct{}
	// logouts are the logouts that run in the background.
	logouts sync.WaitGroup

	mu     sync.Mutex
	client *vim25.Client
	// login counts logins, so that a response for an old login is not applied
	// to the current one.
	login int
	// lastResponseAt is the time of the last response of the stream, with or
	// without updates.
	lastResponseAt time.Time
	// restart makes the stream report all objects again.
	restart context.CancelFunc
}

// login is a client that is logged in, and its stream.
type login struct {
	client *vim25.Client
	users  *vimsession.Manager
	stream Stream
}

// Open opens a session in the background.
func Open(e Endpoint, o Options) *Session {
	s := &Session{Options: o, Endpoint: e, conn: newConnection(e.Server, o.Timeouts, o.Wrap), started: make(chan struct{})}
	s.rest.endpoint, s.rest.conn = e, s.conn
	s.Session = sessions.Open(sessions.Options{
		Endpoint: "vCenter " + e.Server, Serve: s.serve, Logout: s.close, MaxCallers: maxCallers,
		Requeue: o.Requeue, AvailabilityChanged: o.AvailabilityChanged, PhaseChanged: s.conn.meter.Phase,
		Timeouts: sessions.Timeouts{
			Wait: o.Timeouts.Wait, MinRetry: o.Timeouts.MinRetry, MaxRetry: o.Timeouts.MaxRetry,
			MinLoginRetry: o.Timeouts.MinLoginRetry, MaxLoginRetry: o.Timeouts.MaxLoginRetry,
		},
	})
	close(s.started)
	return s
}

// Server returns the vCenter's address.
func (s *Session) Server() string { return s.Endpoint.Server }

// serve opens the session and streams until that fails, or until the cache may
// be out of date and has to be read again over the same stream.
func (s *Session) serve(ctx context.Context, up func()) error {
	<-s.started
	// Requests that keep the session must not wait for those that use it.
	ctx = Urgent(ctx)
	l := s.opened
	if s.opened = nil; l == nil {
		var err error
		if l, err = s.open(ctx); err != nil {
			return Classify(s.Endpoint.Server, err)
		}
	}
	watching, restart := context.WithCancel(ctx)
	defer restart()
	err := l.stream.Read(ctx)
	if err == nil {
		s.recordResponse()
		s.mu.Lock()
		s.client, s.restart = l.client, restart
		s.login++
		s.mu.Unlock()
		up()
		err = l.stream.Watch(ctx, watching)
		if (watching.Err() != nil || IsInvalidVersion(err)) && ctx.Err() == nil {
			s.opened = l
			return sessions.ErrAgain
		}
	}
	// Until the logout has ended, callers must not get the client.
	s.Suspend(func() {})
	s.end(l, err)
	return Classify(s.Endpoint.Server, err)
}

// open logs in and opens the stream.
func (s *Session) open(ctx context.Context) (*login, error) {
	c, err := s.Endpoint.dial(ctx, s.conn)
	if err != nil {
		return nil, err
	}
	l := &login{client: c, users: vimsession.NewManager(c)}
	if err := s.authenticate(ctx, c, l.users); err != nil {
		c.CloseIdleConnections()
		return nil, err
	}
	if l.stream, err = s.OpenStream(ctx, c, s.recordResponse); err != nil {
		s.end(l, err)
		return nil, err
	}
	return l, nil
}

// authenticate logs in, unless many logins of the user were rejected shortly
// before.
func (s *Session) authenticate(ctx context.Context, c *vim25.Client, users *vimsession.Manager) error {
	e := &s.Endpoint
	user := sessions.User{Server: c.ServiceContent.About.InstanceUuid, Name: e.Username, Identity: e.Identity}
	err := s.Logins.Do(ctx, user, e.Password, func() error {
		return users.Login(ctx, url.UserPassword(e.Username, e.Password))
	}, func(err error) bool {
		return hypervisor.ReasonFor(Classify(e.Server, err), "") == infrav1.CredentialsInvalidReason
	})
	if errors.Is(err, sessions.ErrTooManyRejectedLogins) {
		return hypervisor.Failure(infrav1.CredentialsInvalidReason, "vCenter %s: %w", e.Server, err)
	}
	return ExplainLoginFailure(err)
}

// end logs out after err ended a login, and closes its connections. If vCenter
// may not respond, both happen in the background.
func (s *Session) end(l *login, err error) {
	switch {
	case IsAmbiguous(err):
		s.logouts.Go(func() { s.logout(l) })
	case IsNotAuthenticated(err):
		l.client.CloseIdleConnections()
	default:
		s.logout(l)
	}
}

// logout ends a login and closes its connections. vCenter allows a limited
// number of logins, and keeps a login without a logout for half an hour.
func (s *Session) logout(l *login) {
	ctx, cancel := context.WithTimeout(Urgent(context.Background()), s.conn.timeouts.Wait)
	defer cancel()
	defer l.client.CloseIdleConnections()
	if err := errors.Join(s.rest.logOut(ctx), l.users.Logout(ctx)); err != nil {
		log.Log.WithName("vcenter").Info("Cannot log out", "vCenter", s.Server(), "cause", err)
	}
}

// close logs out after the session has been stopped.
func (s *Session) close() {
	if s.opened != nil {
		s.end(s.opened, context.Canceled)
	}
	s.logouts.Wait()
	s.Closed()
}

// Client returns the client once the session is up, or the reason why it is
// not. It waits for a short time only, which timeouts sets. The machine of the
// caller is queued once the session is up.
func (s *Session) Client(ctx context.Context, key hypervisor.Key) (*vim25.Client, int, error) {
	if err := s.Ready(ctx, key); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client, s.login, nil
}

// reconnect ends the stream of the given login, so that a new one is opened.
// The inventory is not read until the objects were read again.
func (s *Session) reconnect(login int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.login == login {
		s.Reconnect()
	}
}

// Resync makes the stream read the objects again. The inventory is not read
// until then.
func (s *Session) Resync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Under the lock, because a stream that is already replaced cannot end the
	// suspension.
	s.Suspend(s.restart)
}

// SupportsVersion reports whether the vCenter of the session supports a version
// of the API.
func (s *Session) SupportsVersion(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil && supportsVersion(s.client, version)
}

// recordResponse records a response of the stream.
func (s *Session) recordResponse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastResponseAt = time.Now()
}

// Age returns the time since the last response of the stream, if it had one.
func (s *Session) Age() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.lastResponseAt), !s.lastResponseAt.IsZero()
}

// Call sends a request over the session. It logs in again and repeats the
// request once if vCenter reports that the session is not authenticated.
func (s *Session) Call(ctx context.Context, request func(context.Context, *vim25.Client) error) error {
	for again := true; ; again = false {
		c, login, err := s.Client(ctx, hypervisor.Key{})
		if err != nil {
			return err
		}
		began := time.Now()
		err = request(ctx, c)
		switch {
		case IsNotAuthenticated(err) && again:
			s.reconnect(login)
			continue
		case err != nil && IsTimeout(err) && ctx.Err() == nil && !s.conn.hasRespondedSince(began) && isHanging(ctx, c):
			// A vCenter that hangs must not block one caller after the other.
			s.reconnect(login)
		}
		return err
	}
}

// CallREST sends requests to the REST API. It logs in before the first
// request, and again when vCenter reports that the session is not
// authenticated. The error is a *RESTError if vCenter rejected the request,
// but not if it rejected the credentials.
func (s *Session) CallREST(ctx context.Context, request func(context.Context, *rest.Client) error) error {
	for again := true; ; again = false {
		c, login, err := s.Client(ctx, hypervisor.Key{})
		if err != nil {
			return err
		}
		began := time.Now()
		api, err := s.rest.open(ctx, c)
		if err == nil {
			err = request(ctx, api)
		}
		switch {
		case RESTStatus(err) == http.StatusUnauthorized && again:
			s.rest.drop(api)
			continue
		case err != nil && IsTimeout(err) && ctx.Err() == nil && !s.conn.hasRespondedSince(began) && isHanging(ctx, c):
			s.reconnect(login)
		}
		return err
	}
}

// RoundTripper returns the transport of another service of the vCenter, with
// the limits of the session.
func (s *Session) RoundTripper(next soap.RoundTripper) soap.RoundTripper {
	return &transport{next: next, conn: s.conn}
}

// isHanging reports whether vCenter does not respond to a request for its time
// either. A vCenter that was slow with a single request does.
func isHanging(ctx context.Context, c *vim25.Client) bool {
	_, err := methods.CurrentTime(Urgent(ctx), c, &types.CurrentTime{This: vim25.ServiceInstance})
	return IsAmbiguous(err)
}
