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

// Pace contains the timeouts and intervals of a session.
type Pace struct {
	// Patience is how long callers wait for a session that is being opened
	// before they get an error; an event triggers them later.
	Patience time.Duration
	// FirstRetry and LastRetry are the shortest and longest retry interval for
	// an endpoint that is down.
	FirstRetry, LastRetry time.Duration
	// FirstLogin and LastLogin are the same for rejected credentials: many
	// directories lock users out after a few failed logins.
	FirstLogin, LastLogin time.Duration
}

// Usually contains the timeouts outside of tests.
var Usually = Pace{
	Patience:   2 * time.Second,
	FirstRetry: time.Second, LastRetry: 30 * time.Second,
	FirstLogin: time.Minute, LastLogin: 5 * time.Minute,
}

// maxBrief is the number of short sessions in a row after which the next login
// is delayed too.
const maxBrief = 5

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
	// until that fails or ctx ends. Its errors are hypervisor.Errors.
	Serve func(ctx context.Context, up func()) error
	// Leave is called once, when the session has been stopped: it logs out.
	Leave func()
	// Wake is called with a machine that got an error and can be reconciled
	// again.
	Wake func(hypervisor.Key)
	// Turned is called when the endpoint became available or unavailable.
	Turned func()
	// Moved is called with every change of phase, for metrics; the first is
	// from none and the last to none.
	Moved func(from, to Phase)
	Pace  Pace
}

// Session is one login at one endpoint.
type Session struct {
	Options

	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	phase Phase
	err   error // why it is down
	// verdict is closed at the next change of phase.
	verdict chan struct{}
	// hangUp ends the running Serve.
	hangUp context.CancelFunc
	// waiting contains machines that got an error.
	waiting map[hypervisor.Key]struct{}
}

// Open starts a session. It returns at once.
func Open(o Options) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Session{
		Options: o, cancel: cancel, done: make(chan struct{}),
		phase: Connecting, verdict: make(chan struct{}), waiting: map[hypervisor.Key]struct{}{},
	}
	o.Moved("", Connecting)
	go s.run(ctx)
	return s
}

// Stop ends the session in the background.
func (s *Session) Stop() { s.cancel() }

// Done is closed when a stopped session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Ready returns nil once the session is up, or the reason why it is not. It
// returns after a short timeout. It reports the machine when the session is up.
func (s *Session) Ready(ctx context.Context, who hypervisor.Key) error {
	for {
		s.mu.Lock()
		phase, err, verdict := s.phase, s.err, s.verdict
		if phase == Down && who.Name != "" {
			s.waiting[who] = struct{}{}
		}
		s.mu.Unlock()
		switch phase {
		case Up:
			return nil
		case Down:
			return err
		case Connecting:
		}
		select {
		case <-verdict:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", s.Endpoint, ctx.Err())
		}
	}
}

// Lost makes the session reconnect. Until then Ready does not report it as up.
func (s *Session) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == Up {
		s.turnLocked(Connecting, nil)
		s.hangUp()
	}
}

// run keeps the session until it is stopped.
func (s *Session) run(ctx context.Context) {
	defer close(s.done)
	logger := log.Log.WithName("sessions").WithValues("endpoint", s.Endpoint)
	retry, login, brief := s.Pace.FirstRetry, s.Pace.FirstLogin, 0
	for {
		began := time.Now()
		wasUp, err := s.serve(ctx)
		if ctx.Err() != nil {
			s.Leave()
			s.turn(Down, s.passing(errors.New("the session was closed")))
			s.Moved(Down, "")
			return
		}
		if time.Since(began) > s.Pace.LastRetry {
			brief = 0
		}
		if wasUp && brief < maxBrief {
			// A lost session is opened again immediately, unless sessions never
			// last.
			retry, login = s.Pace.FirstRetry, s.Pace.FirstLogin
			brief++
			logger.Info("Lost the session", "cause", err)
			continue
		}
		delay := retry
		if hypervisor.ReasonFor(err, "") == infrav1.CredentialsInvalidReason {
			delay, login = login, min(login*2, s.Pace.LastLogin)
		} else {
			retry = min(retry*2, s.Pace.LastRetry)
		}
		delay = wait.Jitter(delay, 0.25)
		s.turn(Down, err)
		logger.Info("Cannot open a session", "cause", err, "retryIn", delay.Round(time.Second))
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// serve calls Serve once. It reports whether the session was ever up.
func (s *Session) serve(ctx context.Context) (wasUp bool, err error) {
	serving, hangUp := context.WithCancel(ctx)
	defer hangUp()
	slow := time.AfterFunc(s.Pace.Patience, s.tooSlow)
	defer slow.Stop()
	err = s.Serve(serving, func() {
		wasUp = true
		s.mu.Lock()
		s.hangUp = hangUp
		s.mu.Unlock()
		s.turn(Up, nil)
	})
	if wasUp {
		s.turn(Connecting, nil)
	}
	return wasUp, err
}

// tooSlow returns an error to waiting callers while the session is still being
// opened. An endpoint with thousands of VMs is slow, but not unreachable: a
// request without a response in time would show that.
func (s *Session) tooSlow() {
	s.turnFrom(Connecting, Down, s.passing(endpoints.ErrUnreachable))
}

func (s *Session) passing(cause error) error {
	return &hypervisor.Error{
		Reason: infrav1.EndpointUnreachableReason, Transient: true,
		Err: fmt.Errorf("%s cannot be reached: %w", s.Endpoint, cause),
	}
}

// turn changes the phase and notifies the waiting callers.
func (s *Session) turn(to Phase, err error) { s.turnFrom("", to, err) }

// turnFrom is turn, unless the phase is no longer from. An empty from matches
// any phase.
func (s *Session) turnFrom(from, to Phase, err error) {
	s.mu.Lock()
	if from != "" && s.phase != from {
		s.mu.Unlock()
		return
	}
	tell, back := s.turnLocked(to, err)
	s.mu.Unlock()
	for key := range back {
		s.Wake(key)
	}
	if tell {
		s.Turned()
	}
}

// turnLocked changes the phase. It returns whether the clusters must be
// notified, and the machines that can be reconciled again.
func (s *Session) turnLocked(to Phase, err error) (tell bool, back map[hypervisor.Key]struct{}) {
	from, before := s.phase, s.err
	s.phase, s.err = to, err
	if to == Up {
		back, s.waiting = s.waiting, map[hypervisor.Key]struct{}{}
	}
	if from == to {
		return to == Down && (before.Error() != err.Error() || hypervisor.IsTransient(before)), back
	}
	s.Moved(from, to)
	close(s.verdict)
	s.verdict = make(chan struct{})
	// A lost session that is opened again immediately is not reported.
	return to != Connecting, back
}
