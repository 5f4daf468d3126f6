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
)

// maxBrief is the number of short sessions in a row after which the next login
// is delayed too.
const maxBrief = 5

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
	line     *line
	rules    *ruler
	marks    *marker
	// turns is the creation queue: it limits the clones under way at the
	// vCenter, over all sessions.
	turns *sessions.CreationQueue
	// logins limits the refused logins at all vCenters.
	logins *sessions.LoginLimiter
	// turned is called when the endpoint became reachable or unreachable.
	turned func()

	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	phase  phase
	err    error // the reason why it is down
	client *vim25.Client
	// heardAt is the time of the last response of the stream, with or without
	// updates.
	heardAt time.Time
	// login counts logins, so that a response for an old login is not applied
	// to the current one.
	login int
	// verdict is closed at the next change of phase.
	verdict chan struct{}
	// hangUp ends the current stream, and restart makes it report all objects
	// again.
	hangUp, restart context.CancelFunc
	// callers is the number of callers that wait for the verdict.
	callers int
	// waiting are machines whose callers got an error and that are queued
	// later.
	waiting map[hypervisor.Key]struct{}
	// restAPI is the login of the current client at the REST API, if one was
	// needed. Only one flight opens it at a time.
	restAPI *restLogin
	flights singleflight.Group
	// restRefused is the last login that the REST API refused.
	restRefused refusal
}

// newSession opens a session in the background.
func newSession(e endpoint, o *Options, t *sessions.CreationQueue, changed func(hypervisor.Key), turned func()) *session {
	s := &session{
		endpoint: e,
		inv:      newInventory(changed),
		line:     newLine(e.server, o),
		turns:    t,
		logins:   o.logins,
		turned:   turned,
		done:     make(chan struct{}),
		phase:    connecting,
		verdict:  make(chan struct{}),
		waiting:  map[hypervisor.Key]struct{}{},
	}
	s.inv.made, s.inv.lag = t.Done, o.pace.settle
	s.resolver = newResolver(s)
	s.rules = &ruler{session: s, queued: map[ref]map[uuid.UUID]bool{}, running: map[ref]bool{}}
	s.marks = &marker{session: s}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	sessionPhases.WithLabelValues(sessions.Label(e.server), string(connecting)).Inc()
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
	pace := s.line.pace
	logger := log.Log.WithName("vsphere").WithValues("server", s.endpoint.server)
	retry, login, brief := pace.firstRetry, pace.firstLogin, 0
	for {
		began := time.Now()
		wasUp, err := s.serve(ctx)
		if ctx.Err() != nil {
			closed := failure(infrav1.EndpointUnreachableReason, "the session with vCenter %s was closed", s.endpoint.server)
			closed.Transient = true
			s.turn(down, closed, nil)
			sessionPhases.WithLabelValues(sessions.Label(s.endpoint.server), string(down)).Dec()
			return
		}
		err = classify(s.endpoint.server, err)
		if time.Since(began) > pace.lastRetry {
			brief = 0
		}
		if wasUp && brief < maxBrief {
			// A lost session is opened again at once, unless sessions keep ending
			// early.
			retry, login = pace.firstRetry, pace.firstLogin
			brief++
			logger.Info("Lost the session with vCenter", "cause", err.Error())
			continue
		}
		delay := retry
		if hypervisor.ReasonFor(err, "") == infrav1.CredentialsInvalidReason {
			delay, login = login, min(login*2, pace.lastLogin)
		} else {
			retry = min(retry*2, pace.lastRetry)
		}
		delay = wait.Jitter(delay, 0.25)
		s.turn(down, err, nil)
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
	streaming, hangUp := context.WithCancel(ctx)
	defer hangUp()
	slow := time.AfterFunc(s.line.pace.patience, s.tooSlow)
	defer slow.Stop()

	c, err := s.endpoint.dial(streaming, s.line)
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
		case ctx.Err() == nil && isAmbiguous(err):
			// vCenter may not respond, so the logout runs in the background.
			go s.logout(ctx, users)
		case !isNotAuthenticated(err):
			s.logout(ctx, users)
		}
	}()
	st, err := openStream(streaming, c, s.line.pace, s.heard)
	if err != nil {
		return false, err
	}
	for {
		wasUp, again, err := s.round(streaming, hangUp, st, c)
		if !again {
			return wasUp, err
		}
		slow.Reset(s.line.pace.patience)
	}
}

// authenticate logs in, unless many logins of the user were refused shortly
// before.
func (s *session) authenticate(ctx context.Context, c *vim25.Client, users *vimsession.Manager) error {
	e := &s.endpoint
	user := sessions.User{Server: c.ServiceContent.About.InstanceUuid, Name: e.username, Identity: e.identity}
	err := s.logins.Do(ctx, user, e.password, func() error {
		return users.Login(ctx, url.UserPassword(e.username, e.password))
	}, func(err error) bool {
		return hypervisor.ReasonFor(classify(e.server, err), "") == infrav1.CredentialsInvalidReason
	})
	if errors.Is(err, sessions.ErrTooManyRejectedLogins) {
		return failure(infrav1.CredentialsInvalidReason, "vCenter %s: %w", e.server, err)
	}
	return refusedLogin(err)
}

// round reads the world and follows it until that fails, or until the world
// may be out of date and has to be read again over the same stream.
func (s *session) round(
	ctx context.Context, hangUp context.CancelFunc, st *stream, c *vim25.Client,
) (wasUp, again bool, err error) {
	w, err := st.learn(ctx)
	if err != nil {
		return false, false, err
	}
	s.inv.replace(w)
	s.heard()
	following, restart := context.WithCancel(ctx)
	defer restart()
	s.mu.Lock()
	s.hangUp, s.restart = hangUp, restart
	s.mu.Unlock()
	s.turn(up, nil, c)
	err = st.follow(ctx, following, s.inv)
	s.turn(connecting, nil, nil)
	return true, (following.Err() != nil || isStaleVersion(err)) && ctx.Err() == nil, err
}

// logout ends a login. vCenter allows a limited number of logins, and keeps a
// login without a logout for half an hour.
func (s *session) logout(ctx context.Context, users *vimsession.Manager) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.line.pace.patience)
	defer cancel()
	s.closeREST(ctx)
	_ = users.Logout(ctx)
}

// turn changes the phase and notifies the clusters and machines.
func (s *session) turn(to phase, err error, c *vim25.Client) {
	s.mu.Lock()
	tell, back := s.turnLocked(to, err, c)
	s.mu.Unlock()
	s.tell(tell, back)
}

// tell queues the clusters, if the change affects them, and the machines that
// wait.
func (s *session) tell(clusters bool, back map[hypervisor.Key]struct{}) {
	for key := range back {
		s.inv.changed(key)
	}
	if clusters {
		s.turned()
	}
}

// turnLocked changes the phase. It returns whether the clusters have to be
// queued, and the machines that have waited.
func (s *session) turnLocked(to phase, err error, c *vim25.Client) (tell bool, back map[hypervisor.Key]struct{}) {
	from, before := s.phase, s.err
	s.phase, s.err, s.client = to, err, c
	if to == up {
		s.login++
	}
	if to == up || from == connecting && to == down {
		// This includes machines whose callers got an error before the phase was
		// known.
		back, s.waiting = s.waiting, map[hypervisor.Key]struct{}{}
	}
	if from == to {
		return to == down && (before.Error() != err.Error() || hypervisor.IsTransient(before)), back
	}
	sessionPhases.WithLabelValues(sessions.Label(s.endpoint.server), string(from)).Dec()
	sessionPhases.WithLabelValues(sessions.Label(s.endpoint.server), string(to)).Inc()
	close(s.verdict)
	s.verdict = make(chan struct{})
	// A lost session that is opened again at once does not affect the clusters.
	return to != connecting, back
}

// tooSlow returns an error to waiting callers while the session is still being
// opened. A vCenter with thousands of VMs is slow but reachable; it counts as
// unreachable when a request times out. A session that comes up at this very
// moment stays up: no other event would change its phase back to up.
func (s *session) tooSlow() {
	slow := failure(infrav1.EndpointUnreachableReason, "vCenter %s cannot be reached: %w", s.endpoint.server, endpoints.ErrUnreachable)
	slow.Transient = true
	s.mu.Lock()
	if s.phase != connecting {
		s.mu.Unlock()
		return
	}
	tell, back := s.turnLocked(down, slow, nil)
	s.mu.Unlock()
	s.tell(tell, back)
}

// ready returns the client once the session is up, or the reason why it is
// not. It waits for a short time only, which pace sets. The machine of the
// caller is queued once the session is up.
func (s *session) ready(ctx context.Context, who hypervisor.Key) (*vim25.Client, int, error) {
	for {
		s.mu.Lock()
		phase, err, client, login, verdict := s.phase, s.err, s.client, s.login, s.verdict
		crowded := phase == connecting && who.Name != "" && s.callers >= maxCallers
		switch {
		case phase == down && who.Name != "", crowded:
			s.waiting[who] = struct{}{}
		case phase == connecting:
			s.callers++
		}
		s.mu.Unlock()
		switch {
		case phase == up:
			return client, login, nil
		case phase == down:
			return nil, 0, err
		case crowded:
			return nil, 0, s.opening()
		}
		err = s.await(ctx, verdict)
		if err != nil {
			return nil, 0, err
		}
	}
}

// await waits for the verdict.
func (s *session) await(ctx context.Context, verdict <-chan struct{}) error {
	defer func() {
		s.mu.Lock()
		s.callers--
		s.mu.Unlock()
	}()
	select {
	case <-verdict:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for vCenter %s: %w", s.endpoint.server, ctx.Err())
	}
}

// opening returns the error for a session that is being opened, which is no
// failure.
func (s *session) opening() error {
	e := failure(infrav1.RequestQueuedReason, "Waiting until the session with vCenter %s is open", s.endpoint.server)
	e.Transient, e.Waiting = true, true
	return e
}

// lost ends the stream of the given login, so that a new one is opened. The
// inventory is not read until the world was read again.
func (s *session) lost(login int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.login == login && s.phase == up {
		s.turnLocked(connecting, nil, nil)
		s.hangUp()
	}
}

// serves reports whether the vCenter of the session supports a version of the
// API.
func (s *session) serves(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil && serves(s.client, version)
}

// heard records a response of the stream.
func (s *session) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
}

// relearn makes the stream read the world again. The inventory is not read
// until then.
func (s *session) relearn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == up {
		s.turnLocked(connecting, nil, nil)
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
		case isNotAuthenticated(err) && again:
			s.lost(login)
			continue
		case err != nil && isTimeout(err) && ctx.Err() == nil && !s.line.answered(began) && hangs(ctx, c):
			// A vCenter that hangs must not block one caller after the other.
			s.lost(login)
		}
		return err
	}
}

// hangs reports whether vCenter does not respond to a request for its time
// either. A vCenter that was slow with a single request does.
func hangs(ctx context.Context, c *vim25.Client) bool {
	_, err := methods.CurrentTime(urgent(ctx), c, &types.CurrentTime{This: vim25.ServiceInstance})
	return isAmbiguous(err)
}
