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
	"github.com/nova-platform/cluster-api-provider-nova/internal/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// maxBrief is how many sessions in a row may be short before the next login
// has to wait too.
const maxBrief = 5

// maxCallers is how many callers wait for a session that is being opened. More
// are sent away at once, so that a vCenter that hangs does not hold up those
// who have work for others.
const maxCallers = 2

// phase is what state a session is in.
type phase string

const (
	connecting phase = "Connecting"
	up         phase = "Up"
	down       phase = "Down"
)

// session is one login at one vCenter. One goroutine opens it, keeps it and
// streams from it; everybody else waits for its verdict or gets it at once.
type session struct {
	endpoint endpoint
	inv      *inventory
	paths    *resolver
	images   images
	line     *line
	rules    *ruler
	marks    *marker
	// turns bounds the clones under way at the vCenter, over all sessions.
	turns *sessions.Turns
	// logins bounds the refused logins at all vCenters.
	logins *sessions.Logins
	// turned is called when the endpoint came or went.
	turned func()

	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	phase  phase
	err    error // why it is down
	client *vim25.Client
	// heardAt is when the stream last said anything, if only that nothing is new.
	heardAt time.Time
	// login counts logins, so that an answer about an old one is not taken
	// for news about the current one.
	login int
	// verdict is closed at the next change of phase.
	verdict chan struct{}
	// hangUp ends the current stream, and restart has it tell everything anew.
	hangUp, restart context.CancelFunc
	// callers is how many wait for the verdict.
	callers int
	// waiting are machines that were sent away.
	waiting map[hypervisor.Key]struct{}
	// restAPI is the login of the current client at the REST API, if one was
	// needed. Opening it is one flight at a time.
	restAPI *restLogin
	flights singleflight.Group
	// restRefused is how vCenter refused the account there.
	restRefused refusal
}

// newSession opens a session in the background.
func newSession(e endpoint, o *Options, t *sessions.Turns, changed func(hypervisor.Key), turned func()) *session {
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
	s.paths = newResolver(s)
	s.rules = &ruler{session: s, queued: map[ref]map[uuid.UUID]bool{}, running: map[ref]bool{}}
	s.marks = &marker{session: s}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	sessionPhases.WithLabelValues(sessions.Label(e.server), string(connecting)).Inc()
	live.add(s)
	// What keeps the session must not wait behind what uses it.
	go s.run(urgent(ctx))
	return s
}

// Stop logs out in the background.
func (s *session) Stop() { s.cancel() }

// Done is closed when the session has ended.
func (s *session) Done() <-chan struct{} { return s.done }

// Keys are the machines that were asked about.
func (s *session) Keys() []hypervisor.Key { return s.inv.keys() }

// Server is the vCenter's address.
func (s *session) Server() string { return s.endpoint.server }

// run keeps the session until it is stopped.
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
			closed.Passing = true
			s.turn(down, closed, nil)
			sessionPhases.WithLabelValues(sessions.Label(s.endpoint.server), string(down)).Dec()
			return
		}
		err = classify(s.endpoint.server, err)
		if time.Since(began) > pace.lastRetry {
			brief = 0
		}
		if wasUp && brief < maxBrief {
			// A loss is mended at once, unless sessions never last.
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

// serve opens the session and streams until that fails. It reports whether
// the session was ever up.
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
			// It may not answer. Nobody waits for that.
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

// authenticate logs in, unless many logins of the user were refused shortly before.
func (s *session) authenticate(ctx context.Context, c *vim25.Client, users *vimsession.Manager) error {
	e := &s.endpoint
	user := sessions.User{Server: c.ServiceContent.About.InstanceUuid, Name: e.username, Identity: e.identity}
	err := s.logins.Do(ctx, user, e.password, func() error {
		return users.Login(ctx, url.UserPassword(e.username, e.password))
	}, func(err error) bool {
		return hypervisor.ReasonFor(classify(e.server, err), "") == infrav1.CredentialsInvalidReason
	})
	if errors.Is(err, sessions.ErrTooManyRefusals) {
		return failure(infrav1.CredentialsInvalidReason, "vCenter %s: %w", e.server, err)
	}
	return refusedLogin(err)
}

// round learns the world and follows it until that fails, or until there is
// doubt about the world and it has to be learnt again over the same stream.
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

// logout ends a login. vCenter allows a bounded number of them, and keeps one
// that is only hung up on for half an hour.
func (s *session) logout(ctx context.Context, users *vimsession.Manager) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.line.pace.patience)
	defer cancel()
	s.closeREST(ctx)
	_ = users.Logout(ctx)
}

// turn changes the phase and tells whoever it concerns.
func (s *session) turn(to phase, err error, c *vim25.Client) {
	s.mu.Lock()
	tell, back := s.turnLocked(to, err, c)
	s.mu.Unlock()
	s.tell(tell, back)
}

// tell tells the clusters, if it concerns them, and the machines that can come
// back.
func (s *session) tell(clusters bool, back map[hypervisor.Key]struct{}) {
	for key := range back {
		s.inv.changed(key)
	}
	if clusters {
		s.turned()
	}
}

// turnLocked changes the phase. It returns whether the clusters are to be
// told, and the machines that can come back.
func (s *session) turnLocked(to phase, err error, c *vim25.Client) (tell bool, back map[hypervisor.Key]struct{}) {
	from, before := s.phase, s.err
	s.phase, s.err, s.client = to, err, c
	if to == up {
		s.login++
	}
	if to == up || from == connecting && to == down {
		// Those that were sent away while it was not known hear it, too.
		back, s.waiting = s.waiting, map[hypervisor.Key]struct{}{}
	}
	if from == to {
		return to == down && (before.Error() != err.Error() || hypervisor.IsPassing(before)), back
	}
	sessionPhases.WithLabelValues(sessions.Label(s.endpoint.server), string(from)).Dec()
	sessionPhases.WithLabelValues(sessions.Label(s.endpoint.server), string(to)).Inc()
	close(s.verdict)
	s.verdict = make(chan struct{})
	// A loss that is mended at once is no news.
	return to != connecting, back
}

// tooSlow sends waiting callers away while the session is still being opened.
// A vCenter with thousands of VMs is slow and not out of reach: that becomes
// known when a request is not answered in time. One that comes up at this very
// moment stays up: nothing would turn it up again.
func (s *session) tooSlow() {
	slow := failure(infrav1.EndpointUnreachableReason, "vCenter %s cannot be reached: %w", s.endpoint.server, endpoints.ErrUnreachable)
	slow.Passing = true
	s.mu.Lock()
	if s.phase != connecting {
		s.mu.Unlock()
		return
	}
	tell, back := s.turnLocked(down, slow, nil)
	s.mu.Unlock()
	s.tell(tell, back)
}

// ready returns the client once the session is up, or why it is not. It never
// waits longer than patience. A machine that asked is told when it is up.
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

// opening says that the session is being opened, which is no failure.
func (s *session) opening() error {
	e := failure(infrav1.RequestQueuedReason, "Waiting until the session with vCenter %s is open", s.endpoint.server)
	e.Passing, e.Waiting = true, true
	return e
}

// lost ends the stream of the given login, so that a new one is made. From
// then on nobody reads the inventory before it is learnt anew.
func (s *session) lost(login int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.login == login && s.phase == up {
		s.turnLocked(connecting, nil, nil)
		s.hangUp()
	}
}

// serves reports whether the vCenter of the session has a version of the API.
func (s *session) serves(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil && serves(s.client, version)
}

// heard notes that the stream has said something.
func (s *session) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
}

// relearn has the inventory learnt anew. Until then nobody reads it.
func (s *session) relearn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == up {
		s.turnLocked(connecting, nil, nil)
		s.restart()
	}
}

// call sends a request over the session. It logs in again and repeats the
// request once if vCenter says that nobody is logged in.
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
			// A vCenter that hangs must not hold one caller after the other.
			s.lost(login)
		}
		return err
	}
}

// hangs reports whether vCenter does not answer a request for its time either. A
// vCenter that was slow with a single request does.
func hangs(ctx context.Context, c *vim25.Client) bool {
	_, err := methods.CurrentTime(urgent(ctx), c, &types.CurrentTime{This: vim25.ServiceInstance})
	return isAmbiguous(err)
}
