package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	vimsession "github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// maxShortSessions is the number of short sessions in a row after which the
// next login is delayed too.
const maxShortSessions = 5

// maxCallers is the number of callers that wait for a session that is being
// opened. Further callers get an error at once, so that a vCenter that hangs
// does not block workers with requests for other vCenters.
const maxCallers = 2

// phase is the state of a session.
type phase string

const (
	connecting phase = "Connecting"
	up         phase = "Up"
	down       phase = "Down"
)

// session is one login at one vCenter. One goroutine opens it, keeps it open
// and streams from it. Other goroutines wait for the result of the login, or
// get it at once if it is known.
type session struct {
	endpoint endpoint
	inv      *inventory
	resolver *resolver
	images   images
	conn     *connection
	rules    *ruleWorker
	tags     *tagWorker
	// creations is the creation queue: it limits the clones under way at the
	// vCenter, over all sessions.
	creations *sessions.CreationQueue
	// logins limits the rejected logins at all vCenters.
	logins *sessions.LoginLimiter
	// availabilityChanged is called when the endpoint became reachable or
	// unreachable.
	availabilityChanged func()

	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	phase  phase
	err    error // the reason why it is down
	client *vim25.Client
	// lastResponseAt is the time of the last response of the stream, with or
	// without updates.
	lastResponseAt time.Time
	// login counts logins, so that a response for an old login is not applied
	// to the current one.
	login int
	// phaseChanged is closed at the next change of phase.
	phaseChanged chan struct{}
	// disconnect ends the current stream, and restart makes it report all objects
	// again.
	disconnect, restart context.CancelFunc
	// callers is the number of callers that wait for the next phase.
	callers int
	// waiting are machines whose callers got an error and that are queued
	// later.
	waiting map[hypervisor.Key]struct{}
	// restAPI is the login of the current client at the REST API, if one was
	// needed. Only one flight opens it at a time.
	restAPI *restLogin
	flights singleflight.Group
	// restBackoff is the last login that the REST API rejected.
	restBackoff loginBackoff
}

// newSession opens a session in the background.
func newSession(e endpoint, o *Options, t *sessions.CreationQueue, changed func(hypervisor.Key), availabilityChanged func()) *session {
	s := &session{
		endpoint:            e,
		inv:                 newInventory(changed),
		conn:                newConnection(e.server, o),
		creations:           t,
		logins:              o.logins,
		availabilityChanged: availabilityChanged,
		done:                make(chan struct{}),
		phase:               connecting,
		phaseChanged:        make(chan struct{}),
		waiting:             map[hypervisor.Key]struct{}{},
	}
	s.inv.creationEnded, s.inv.lag = t.Done, o.timeouts.lag
	s.resolver = newResolver(s)
	s.rules = &ruleWorker{session: s, queued: map[ref]map[uuid.UUID]bool{}, running: map[ref]bool{}}
	s.tags = &tagWorker{session: s}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.conn.meter.Phase("", sessions.Phase(connecting))
	live.add(s)
	// Requests that keep the session must not wait for those that use it.
	go s.run(urgent(ctx))
	return s
}

// Stop logs out in the background.
func (s *session) Stop() { s.cancel() }

// Done is closed when the session has ended.
func (s *session) Done() <-chan struct{} { return s.done }

// Keys returns the machines that were observed.
func (s *session) Keys() []hypervisor.Key { return s.inv.keys() }

// Server returns the vCenter's address.
func (s *session) Server() string { return s.endpoint.server }

// run keeps the session open until it is stopped.
func (s *session) run(ctx context.Context) {
	defer close(s.done)
	defer live.remove(s)
	timeouts := s.conn.timeouts
	logger := log.Log.WithName("vsphere").WithValues("server", s.endpoint.server)
	retry, login, short := timeouts.minRetry, timeouts.minLoginRetry, 0
	for {
		began := time.Now()
		wasUp, err := s.serve(ctx)
		if ctx.Err() != nil {
			closed := hypervisor.Failure(infrav1.EndpointUnreachableReason, "the session with vCenter %s was closed", s.endpoint.server)
			closed.Transient = true
			s.setPhase(down, closed, nil)
			s.conn.meter.Phase(sessions.Phase(down), "")
			return
		}
		err = vcenter.Classify(s.endpoint.server, err)
		if time.Since(began) > timeouts.maxRetry {
			short = 0
		}
		if wasUp && short < maxShortSessions {
			// A lost session is opened again at once, unless sessions keep ending
			// early.
			retry, login = timeouts.minRetry, timeouts.minLoginRetry
			short++
			logger.Info("Lost the session with vCenter", "cause", err.Error())
			continue
		}
		delay := retry
		if hypervisor.ReasonFor(err, "") == infrav1.CredentialsInvalidReason {
			delay, login = login, min(login*2, timeouts.maxLoginRetry)
		} else {
			retry = min(retry*2, timeouts.maxRetry)
		}
		delay = wait.Jitter(delay, 0.25)
		s.setPhase(down, err, nil)
		logger.Info("Cannot open a session with vCenter", "cause", err.Error(), "retryIn", delay.Round(time.Second))
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// serve opens the session and streams until that fails. It reports whether the
// session was ever up.
func (s *session) serve(ctx context.Context) (wasUp bool, err error) {
	streaming, disconnect := context.WithCancel(ctx)
	defer disconnect()
	slow := time.AfterFunc(s.conn.timeouts.wait, s.tooSlow)
	defer slow.Stop()

	c, err := s.endpoint.dial(streaming, s.conn)
	if err != nil {
		return false, err
	}
	defer c.CloseIdleConnections()
	users := vimsession.NewManager(c)
	if err := s.authenticate(streaming, c, users); err != nil {
		return false, err
	}
	defer func() {
		switch {
		case ctx.Err() == nil && vcenter.IsAmbiguous(err):
			// vCenter may not respond, so the logout runs in the background.
			go s.logout(ctx, users)
		case !vcenter.IsNotAuthenticated(err):
			s.logout(ctx, users)
		}
	}()
	st, err := openStream(streaming, c, s.conn.timeouts, s.recordResponse)
	if err != nil {
		return false, err
	}
	for {
		wasUp, again, err := s.watchOnce(streaming, disconnect, st, c)
		if !again {
			return wasUp, err
		}
		slow.Reset(s.conn.timeouts.wait)
	}
}

// authenticate logs in, unless many logins of the user were rejected shortly
// before.
func (s *session) authenticate(ctx context.Context, c *vim25.Client, users *vimsession.Manager) error {
	e := &s.endpoint
	user := sessions.User{Server: c.ServiceContent.About.InstanceUuid, Name: e.username, Identity: e.identity}
	err := s.logins.Do(ctx, user, e.password, func() error {
		return users.Login(ctx, url.UserPassword(e.username, e.password))
	}, func(err error) bool {
		return hypervisor.ReasonFor(vcenter.Classify(e.server, err), "") == infrav1.CredentialsInvalidReason
	})
	if errors.Is(err, sessions.ErrTooManyRejectedLogins) {
		return hypervisor.Failure(infrav1.CredentialsInvalidReason, "vCenter %s: %w", e.server, err)
	}
	return vcenter.ExplainLoginFailure(err)
}

// watchOnce reads the inventory and watches it until that fails, or until the
// cache may be out of date and has to be read again over the same stream.
func (s *session) watchOnce(
	ctx context.Context, disconnect context.CancelFunc, st *stream, c *vim25.Client,
) (wasUp, again bool, err error) {
	o, err := st.readAll(ctx)
	if err != nil {
		return false, false, err
	}
	s.inv.replace(o)
	s.recordResponse()
	watching, restart := context.WithCancel(ctx)
	defer restart()
	s.mu.Lock()
	s.disconnect, s.restart = disconnect, restart
	s.mu.Unlock()
	s.setPhase(up, nil, c)
	err = st.watch(ctx, watching, s.inv)
	s.setPhase(connecting, nil, nil)
	return true, (watching.Err() != nil || vcenter.IsInvalidVersion(err)) && ctx.Err() == nil, err
}

// logout ends a login. vCenter allows a limited number of logins, and keeps a
// login without a logout for half an hour.
func (s *session) logout(ctx context.Context, users *vimsession.Manager) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.conn.timeouts.wait)
	defer cancel()
	s.closeREST(ctx)
	_ = users.Logout(ctx)
}

// setPhase changes the phase and notifies the clusters and machines.
func (s *session) setPhase(to phase, err error, c *vim25.Client) {
	s.mu.Lock()
	notify, requeue := s.setPhaseLocked(to, err, c)
	s.mu.Unlock()
	s.notify(notify, requeue)
}

// notify queues the clusters, if the change affects them, and the machines that
// wait.
func (s *session) notify(clusters bool, requeue map[hypervisor.Key]struct{}) {
	for key := range requeue {
		s.inv.changed(key)
	}
	if clusters {
		s.availabilityChanged()
	}
}

// setPhaseLocked changes the phase. It returns whether the clusters have to be
// queued, and the machines that have waited.
func (s *session) setPhaseLocked(to phase, err error, c *vim25.Client) (notify bool, requeue map[hypervisor.Key]struct{}) {
	from, before := s.phase, s.err
	s.phase, s.err, s.client = to, err, c
	if to == up {
		s.login++
	}
	if to == up || from == connecting && to == down {
		// This includes machines whose callers got an error before the phase was
		// known.
		requeue, s.waiting = s.waiting, map[hypervisor.Key]struct{}{}
	}
	if from == to {
		return to == down && (before.Error() != err.Error() || hypervisor.IsTransient(before)), requeue
	}
	s.conn.meter.Phase(sessions.Phase(from), sessions.Phase(to))
	close(s.phaseChanged)
	s.phaseChanged = make(chan struct{})
	// A lost session that is opened again at once does not affect the clusters.
	return to != connecting, requeue
}

// tooSlow returns an error to waiting callers while the session is still being
// opened. A vCenter with thousands of VMs is slow but reachable; it counts as
// unreachable when a request times out. A session that comes up at this very
// moment stays up: no other event would change its phase back to up.
func (s *session) tooSlow() {
	slow := hypervisor.Failure(infrav1.EndpointUnreachableReason, "vCenter %s cannot be reached: %w", s.endpoint.server, endpoints.ErrUnreachable)
	slow.Transient = true
	s.mu.Lock()
	if s.phase != connecting {
		s.mu.Unlock()
		return
	}
	notify, requeue := s.setPhaseLocked(down, slow, nil)
	s.mu.Unlock()
	s.notify(notify, requeue)
}

// ready returns the client once the session is up, or the reason why it is
// not. It waits for a short time only, which timeouts sets. The machine of the
// caller is queued once the session is up.
func (s *session) ready(ctx context.Context, key hypervisor.Key) (*vim25.Client, int, error) {
	for {
		s.mu.Lock()
		phase, err, client, login, phaseChanged := s.phase, s.err, s.client, s.login, s.phaseChanged
		tooMany := phase == connecting && key.Name != "" && s.callers >= maxCallers
		switch {
		case phase == down && key.Name != "", tooMany:
			s.waiting[key] = struct{}{}
		case phase == connecting:
			s.callers++
		}
		s.mu.Unlock()
		switch {
		case phase == up:
			return client, login, nil
		case phase == down:
			return nil, 0, err
		case tooMany:
			return nil, 0, s.connectingError()
		}
		err = s.await(ctx, phaseChanged)
		if err != nil {
			return nil, 0, err
		}
	}
}

// await waits for the next phase.
func (s *session) await(ctx context.Context, phaseChanged <-chan struct{}) error {
	defer func() {
		s.mu.Lock()
		s.callers--
		s.mu.Unlock()
	}()
	select {
	case <-phaseChanged:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for vCenter %s: %w", s.endpoint.server, ctx.Err())
	}
}

// connectingError returns the error for a session that is being opened, which
// is no failure.
func (s *session) connectingError() error {
	e := hypervisor.Failure(infrav1.RequestQueuedReason, "Waiting until the session with vCenter %s is open", s.endpoint.server)
	e.Transient, e.Waiting = true, true
	return e
}

// reconnect ends the stream of the given login, so that a new one is opened.
// The inventory is not read until the objects were read again.
func (s *session) reconnect(login int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.login == login && s.phase == up {
		s.setPhaseLocked(connecting, nil, nil)
		s.disconnect()
	}
}

// supportsVersion reports whether the vCenter of the session supports a version
// of the API.
func (s *session) supportsVersion(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil && supportsVersion(s.client, version)
}

// recordResponse records a response of the stream.
func (s *session) recordResponse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastResponseAt = time.Now()
}

// resync makes the stream read the objects again. The inventory is not read
// until then.
func (s *session) resync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == up {
		s.setPhaseLocked(connecting, nil, nil)
		s.restart()
	}
}

// call sends a request over the session. It logs in again and repeats the
// request once if vCenter reports that the session is not authenticated.
func (s *session) call(ctx context.Context, request func(context.Context, *vim25.Client) error) error {
	for again := true; ; again = false {
		c, login, err := s.ready(ctx, hypervisor.Key{})
		if err != nil {
			return err
		}
		began := time.Now()
		err = request(ctx, c)
		switch {
		case vcenter.IsNotAuthenticated(err) && again:
			s.reconnect(login)
			continue
		case err != nil && vcenter.IsTimeout(err) && ctx.Err() == nil && !s.conn.hasRespondedSince(began) && isHanging(ctx, c):
			// A vCenter that hangs must not block one caller after the other.
			s.reconnect(login)
		}
		return err
	}
}

// isHanging reports whether vCenter does not respond to a request for its time
// either. A vCenter that was slow with a single request does.
func isHanging(ctx context.Context, c *vim25.Client) bool {
	_, err := methods.CurrentTime(urgent(ctx), c, &types.CurrentTime{This: vim25.ServiceInstance})
	return vcenter.IsAmbiguous(err)
}
