package sessions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Timeouts contains the timeouts and intervals of a session.
type Timeouts struct {
	// Wait is how long callers wait for a session that is being opened before
	// they get an error; an event triggers them later.
	Wait time.Duration
	// MinRetry and MaxRetry are the shortest and longest retry interval for
	// an endpoint that is down.
	MinRetry, MaxRetry time.Duration
	// MinLoginRetry and MaxLoginRetry are the same for rejected credentials: many
	// directories lock users out after a few failed logins.
	MinLoginRetry, MaxLoginRetry time.Duration
}

// DefaultTimeouts contains the timeouts outside of tests.
var DefaultTimeouts = Timeouts{
	Wait:     2 * time.Second,
	MinRetry: time.Second, MaxRetry: 30 * time.Second,
	MinLoginRetry: time.Minute, MaxLoginRetry: 5 * time.Minute,
}

// maxShortSessions is the number of short sessions in a row after which the
// next login is delayed too.
const maxShortSessions = 5

// Phase is the state of a session.
type Phase string

// Phases.
const (
	Connecting Phase = "Connecting"
	Up         Phase = "Up"
	Down       Phase = "Down"
)

// Options are the parameters of a session.
type Options struct {
	// Endpoint is its name in messages, such as "oVirt engine
	// engine.example.com".
	Endpoint string
	// Serve opens the session, calls up once it is open, and reads from it
	// until that fails or ctx ends. Its errors are hypervisor.Errors, or
	// ErrAgain.
	Serve func(ctx context.Context, up func()) error
	// Logout is called once, when the session has been stopped: it logs out.
	Logout func()
	// Requeue is called with a machine that got an error and can be reconciled
	// again.
	Requeue func(hypervisor.Key)
	// AvailabilityChanged is called when the endpoint became available or
	// unavailable.
	AvailabilityChanged func()
	// PhaseChanged is called with every change of phase, for metrics; the first
	// is from none and the last to none.
	PhaseChanged func(from, to Phase)
	// MaxCallers is the number of machines that wait for a session that is being
	// opened. Further machines get an error at once, so that an endpoint that
	// hangs does not block workers with machines of other endpoints. If not set,
	// the number is not limited.
	MaxCallers int
	Timeouts   Timeouts
}

// ErrAgain is returned by Serve if it has to be called again at once, although
// the session was not lost.
var ErrAgain = errors.New("the objects have to be read again")

// Session is one login at one endpoint.
type Session struct {
	Options

	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	phase Phase
	err   error // why it is down
	// changed is closed at the next change of phase.
	changed chan struct{}
	// disconnect ends the running Serve.
	disconnect context.CancelFunc
	// callers is the number of callers that wait for the next phase.
	callers int
	// waiting contains machines that got an error.
	waiting map[hypervisor.Key]struct{}
}

// Open starts a session. It returns at once.
func Open(o Options) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Session{
		Options: o, cancel: cancel, done: make(chan struct{}),
		phase: Connecting, changed: make(chan struct{}), waiting: map[hypervisor.Key]struct{}{},
	}
	o.PhaseChanged("", Connecting)
	go s.run(ctx)
	return s
}

// Stop ends the session in the background.
func (s *Session) Stop() { s.cancel() }

// Done is closed when a stopped session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Ready returns nil once the session is up, or the reason why it is not. It
// returns after a short timeout. It reports the machine when the session is up.
func (s *Session) Ready(ctx context.Context, key hypervisor.Key) error {
	for {
		s.mu.Lock()
		phase, err, changed := s.phase, s.err, s.changed
		tooMany := phase == Connecting && key.Name != "" && s.MaxCallers > 0 && s.callers >= s.MaxCallers
		switch {
		case phase == Down && key.Name != "", tooMany:
			s.waiting[key] = struct{}{}
		case phase == Connecting:
			s.callers++
		}
		s.mu.Unlock()
		switch {
		case phase == Up:
			return nil
		case phase == Down:
			return err
		case tooMany:
			return &hypervisor.Error{
				Reason: infrav1.RequestQueuedReason, Transient: true, Waiting: true,
				Err: fmt.Errorf("waiting until the session with %s is open", s.Endpoint),
			}
		}
		if err := s.await(ctx, changed); err != nil {
			return err
		}
	}
}

// await waits for the next phase.
func (s *Session) await(ctx context.Context, changed <-chan struct{}) error {
	defer func() {
		s.mu.Lock()
		s.callers--
		s.mu.Unlock()
	}()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", s.Endpoint, ctx.Err())
	}
}

// Reconnect makes the session reconnect. Until then Ready does not report it as up.
func (s *Session) Reconnect() {
	s.Suspend(func() { s.disconnect() })
}

// Suspend calls end, which ends Serve with ErrAgain. Until Serve calls up again,
// Ready does not report the session as up.
func (s *Session) Suspend(end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == Up {
		s.setPhaseLocked(Connecting, nil)
		end()
	}
}

// run keeps the session until it is stopped.
func (s *Session) run(ctx context.Context) {
	defer close(s.done)
	logger := log.Log.WithName("sessions").WithValues("endpoint", s.Endpoint)
	retry, login, short := s.Timeouts.MinRetry, s.Timeouts.MinLoginRetry, 0
	began := time.Now()
	for ; ; began = time.Now() {
		wasUp, err := s.serve(ctx)
		for errors.Is(err, ErrAgain) && ctx.Err() == nil {
			wasUp, err = s.serve(ctx)
		}
		if ctx.Err() != nil {
			s.Logout()
			s.setPhase(Down, s.unreachable(errors.New("the session was closed")))
			s.PhaseChanged(Down, "")
			return
		}
		if time.Since(began) > s.Timeouts.MaxRetry {
			short = 0
		}
		if wasUp && short < maxShortSessions {
			// A lost session is opened again immediately, unless sessions never
			// last.
			retry, login = s.Timeouts.MinRetry, s.Timeouts.MinLoginRetry
			short++
			logger.Info("Lost the session", "cause", err)
			continue
		}
		delay := retry
		if hypervisor.ReasonFor(err, "") == infrav1.CredentialsInvalidReason {
			delay, login = login, min(login*2, s.Timeouts.MaxLoginRetry)
		} else {
			retry = min(retry*2, s.Timeouts.MaxRetry)
		}
		delay = wait.Jitter(delay, 0.25)
		s.setPhase(Down, err)
		logger.Info("Cannot open a session", "cause", err, "retryIn", delay.Round(time.Second))
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// serve calls Serve once. It reports whether the session was ever up.
func (s *Session) serve(ctx context.Context) (wasUp bool, err error) {
	serving, disconnect := context.WithCancel(ctx)
	defer disconnect()
	slow := time.AfterFunc(s.Timeouts.Wait, s.tooSlow)
	defer slow.Stop()
	err = s.Serve(serving, func() {
		wasUp = true
		slow.Stop()
		s.mu.Lock()
		s.disconnect = disconnect
		s.mu.Unlock()
		s.setPhase(Up, nil)
	})
	if wasUp {
		s.setPhase(Connecting, nil)
	}
	return wasUp, err
}

// tooSlow returns an error to waiting callers while the session is still being
// opened. An endpoint with thousands of VMs is slow, but not unreachable: a
// request without a response in time would show that.
func (s *Session) tooSlow() {
	s.setPhaseIf(Connecting, Down, s.unreachable(endpoints.ErrUnreachable))
}

func (s *Session) unreachable(cause error) error {
	return &hypervisor.Error{
		Reason: infrav1.EndpointUnreachableReason, Transient: true,
		Err: fmt.Errorf("%s cannot be reached: %w", s.Endpoint, cause),
	}
}

// setPhase changes the phase and notifies the waiting callers.
func (s *Session) setPhase(to Phase, err error) { s.setPhaseIf("", to, err) }

// setPhaseIf is setPhase, unless the phase is no longer from. An empty from matches
// any phase.
func (s *Session) setPhaseIf(from, to Phase, err error) {
	s.mu.Lock()
	if from != "" && s.phase != from {
		s.mu.Unlock()
		return
	}
	notify, requeue := s.setPhaseLocked(to, err)
	s.mu.Unlock()
	for key := range requeue {
		s.Requeue(key)
	}
	if notify {
		s.AvailabilityChanged()
	}
}

// setPhaseLocked changes the phase. It returns whether the clusters must be
// notified, and the machines that can be reconciled again.
func (s *Session) setPhaseLocked(to Phase, err error) (notify bool, requeue map[hypervisor.Key]struct{}) {
	from, before := s.phase, s.err
	s.phase, s.err = to, err
	if to == Up || from == Connecting && to == Down {
		// This includes machines that got an error before the phase was known.
		requeue, s.waiting = s.waiting, map[hypervisor.Key]struct{}{}
	}
	if from == to {
		return to == Down && (before.Error() != err.Error() || hypervisor.IsTransient(before)), requeue
	}
	s.PhaseChanged(from, to)
	close(s.changed)
	s.changed = make(chan struct{})
	// A lost session that is opened again immediately is not reported.
	return to != Connecting, requeue
}
