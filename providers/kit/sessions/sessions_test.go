package sessions

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

const soon = 10 * time.Second

var machine = hypervisor.Key{Namespace: "default", Name: "m"}

// peer is the other end of a session.
type peer struct {
	mu                  sync.Mutex
	err                 error         // why it cannot be opened
	broken              chan struct{} // closed when the served session ends
	opened              int
	requeued            []hypervisor.Key
	availabilityChanges int
	logouts             int
	phases              map[Phase]int
	maxCallers          int
	block               chan struct{} // closed when the session may come up
	again               chan struct{} // receives when it is served again
}

func (p *peer) serve(ctx context.Context, up func()) error {
	p.mu.Lock()
	p.opened++
	err, broken := p.err, p.broken
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if p.block != nil {
		<-p.block
	}
	up()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.again:
		return ErrAgain
	case <-broken:
		return errors.New("it broke")
	}
}

func (p *peer) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	close(p.broken)
	p.broken = make(chan struct{})
}

func (p *peer) count(of func(*peer) int) func() int {
	return func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return of(p)
	}
}

func (p *peer) open(t *testing.T, timeouts Timeouts) *Session {
	t.Helper()
	p.broken, p.again, p.phases = make(chan struct{}), make(chan struct{}, 1), map[Phase]int{}
	s := Open(Options{
		Endpoint: "engine", Serve: p.serve, Timeouts: timeouts, MaxCallers: p.maxCallers,
		Logout: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.logouts++
		},
		Requeue: func(k hypervisor.Key) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.requeued = append(p.requeued, k)
		},
		AvailabilityChanged: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.availabilityChanges++
		},
		PhaseChanged: func(from, to Phase) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.phases[from]--
			p.phases[to]++
		},
	})
	t.Cleanup(func() {
		s.Stop()
		<-s.Done()
	})
	return s
}

func shortTimeouts() Timeouts {
	ms := time.Millisecond
	return Timeouts{Wait: 20 * ms, MinRetry: ms, MaxRetry: 2 * ms, MinLoginRetry: ms, MaxLoginRetry: 2 * ms}
}

func TestSessionComesUpAndGoesDown(t *testing.T) {
	g, p := NewWithT(t), &peer{}
	p.err = &hypervisor.Error{Reason: infrav1.EndpointUnreachableReason, Err: errors.New("no route")}
	s := p.open(t, shortTimeouts())
	g.Eventually(func() error { return s.Ready(t.Context(), machine) }, soon).Should(MatchError("no route"))
	p.set(nil)
	g.Eventually(p.count(func(p *peer) int { return len(p.requeued) }), soon).Should(Equal(1), "a machine that got an error is requeued")
	g.Expect(s.Ready(t.Context(), machine)).To(Succeed())
	changes := p.count(func(p *peer) int { return p.availabilityChanges })
	g.Eventually(changes, soon).Should(BeNumerically(">=", 2))
	p.set(errors.New("down"))
	g.Eventually(func() error { return s.Ready(t.Context(), machine) }, soon).Should(MatchError("down"))
}

func TestReconnectionIsNotReported(t *testing.T) {
	g, p := NewWithT(t), &peer{}
	s := p.open(t, Timeouts{Wait: soon, MinRetry: soon, MaxRetry: time.Nanosecond, MinLoginRetry: soon, MaxLoginRetry: soon})
	g.Expect(s.Ready(t.Context(), machine)).To(Succeed())
	g.Eventually(p.count(func(p *peer) int { return p.availabilityChanges }), soon).Should(Equal(1))
	opened := p.count(func(p *peer) int { return p.opened })
	s.Reconnect()
	g.Eventually(opened, soon).Should(Equal(2))
	g.Expect(s.Ready(t.Context(), machine)).To(Succeed())
	p.set(nil)
	g.Eventually(opened, soon).Should(Equal(3))
	g.Expect(s.Ready(t.Context(), machine)).To(Succeed())
}

func TestSlowEndpointDoesNotBlockCallers(t *testing.T) {
	g, release := NewWithT(t), make(chan struct{})
	var once sync.Once
	s := Open(Options{
		Endpoint: "engine", Timeouts: shortTimeouts(), Logout: func() {}, Requeue: func(hypervisor.Key) {}, AvailabilityChanged: func() {}, PhaseChanged: func(Phase, Phase) {},
		Serve: func(ctx context.Context, up func()) error {
			<-release
			up()
			<-ctx.Done()
			return ctx.Err()
		},
	})
	t.Cleanup(func() {
		once.Do(func() { close(release) })
		s.Stop()
		<-s.Done()
	})
	err := s.Ready(t.Context(), machine)
	g.Expect(hypervisor.IsTransient(err)).To(BeTrue())
	g.Expect(err).To(MatchError("engine cannot be reached: " + endpoints.ErrUnreachable.Error()))
	once.Do(func() { close(release) })
	g.Eventually(func() error { return s.Ready(t.Context(), machine) }, soon).Should(Succeed())
}

// A timeout does not report a session as down that has come up already.
func TestWaitTimeoutWhileASessionComesUp(t *testing.T) {
	g := NewWithT(t)
	// The message for this endpoint takes long to format.
	endpoint := strings.Repeat("engine", 1<<18)
	for range 20 {
		s := &Session{
			Options: Options{Endpoint: endpoint, AvailabilityChanged: func() {}, PhaseChanged: func(Phase, Phase) {}},
			phase:   Connecting, changed: make(chan struct{}),
		}
		var both sync.WaitGroup
		s.mu.Lock()
		both.Go(s.tooSlow)
		<-time.After(5 * time.Millisecond) // a goroutine that waits for a lock cannot be observed
		both.Go(func() { s.setPhase(Up, nil) })
		<-time.After(5 * time.Millisecond)
		s.mu.Unlock()
		both.Wait()
		g.Expect(s.phase).To(Equal(Up))
	}
}

// No other event would change the phase of a working session that counts as
// down.
func TestSessionThatComesUpWhenItIsTooSlowIsUp(t *testing.T) {
	for range 5000 {
		s := &Session{
			Options: Options{AvailabilityChanged: func() {}, PhaseChanged: func(Phase, Phase) {}},
			phase:   Connecting, changed: make(chan struct{}), waiting: map[hypervisor.Key]struct{}{},
		}
		var both sync.WaitGroup
		both.Go(s.tooSlow)
		both.Go(func() { s.setPhase(Up, nil) })
		both.Wait()
		if s.phase != Up {
			t.Fatalf("a session that came up is %s", s.phase)
		}
	}
}

// An endpoint that hangs keeps few callers waiting. The others are requeued.
func TestCallersAreLimited(t *testing.T) {
	g, p := NewWithT(t), &peer{}
	p.maxCallers = 1
	p.block = make(chan struct{})
	s := p.open(t, Timeouts{Wait: soon, MinRetry: soon, MaxRetry: soon, MinLoginRetry: soon, MaxLoginRetry: soon})
	first := make(chan error, 1)
	go func() { first <- s.Ready(t.Context(), hypervisor.Key{Name: "first"}) }()
	g.Eventually(func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.callers
	}, soon).Should(Equal(1))
	err := s.Ready(t.Context(), machine)
	g.Expect(err).To(MatchError("waiting until the session with engine is open"))
	g.Expect(hypervisor.IsWaiting(err)).To(BeTrue())
	close(p.block)
	g.Eventually(first, soon).Should(Receive(BeNil()))
	g.Eventually(p.count(func(p *peer) int { return len(p.requeued) }), soon).Should(Equal(1))
}

// Serve can be called again without a new login: callers wait meanwhile, and
// clusters are not told.
func TestSuspendedSession(t *testing.T) {
	g, p := NewWithT(t), &peer{}
	s := p.open(t, Timeouts{Wait: soon, MinRetry: soon, MaxRetry: soon, MinLoginRetry: soon, MaxLoginRetry: soon})
	opened := p.count(func(p *peer) int { return p.opened })
	for i := range 2 * maxShortSessions {
		g.Expect(s.Ready(t.Context(), machine)).To(Succeed())
		s.Suspend(func() { p.again <- struct{}{} })
		g.Eventually(opened, soon).Should(Equal(i + 2))
	}
	g.Expect(s.Ready(t.Context(), machine)).To(Succeed())
	changes := p.count(func(p *peer) int { return p.availabilityChanges })
	g.Eventually(changes, soon).Should(Equal(2*maxShortSessions + 1))
}

func TestStoppedSessionReturnsAnError(t *testing.T) {
	g, p := NewWithT(t), &peer{}
	s := p.open(t, shortTimeouts())
	g.Expect(s.Ready(t.Context(), machine)).To(Succeed())
	s.Reconnect()
	g.Eventually(func() error { return s.Ready(t.Context(), machine) }, soon).Should(Succeed())
	left := p.count(func(p *peer) int { return p.logouts })
	g.Expect(left()).To(BeZero(), "a reopened session stays logged in")
	s.Stop()
	<-s.Done()
	g.Expect(left()).To(Equal(1))
	g.Expect(hypervisor.IsTransient(s.Ready(t.Context(), machine))).To(BeTrue())
	for _, phase := range []Phase{Connecting, Up, Down} {
		g.Expect(p.count(func(p *peer) int { return p.phases[phase] })()).To(BeZero(), string(phase))
	}
}

// stub is a session in a pool.
type stub struct {
	done      chan struct{}
	key       hypervisor.Key
	server    string
	creations *CreationQueue
}

func (s *stub) Stop()                  { close(s.done) }
func (s *stub) Done() <-chan struct{}  { return s.done }
func (s *stub) Keys() []hypervisor.Key { return []hypervisor.Key{s.key} }
func (s *stub) Server() string         { return s.server }

func TestPool(t *testing.T) {
	g, p := NewWithT(t), NewPool[*stub](0)
	made := 0
	open := func(id, cluster string) *stub {
		s, err := p.Open(id, "server", hypervisor.Key{Name: cluster}, func(*CreationQueue) (*stub, error) {
			made++
			return &stub{done: make(chan struct{}), key: hypervisor.Key{Name: id}}, nil
		})
		g.Expect(err).NotTo(HaveOccurred())
		return s
	}
	a := open("a", "one")
	g.Expect(open("a", "two")).To(BeIdenticalTo(a))
	g.Expect(made).To(Equal(1))

	open("b", "one")
	g.Expect(a.Done()).NotTo(BeClosed(), "two still uses it")
	b := open("b", "two")
	g.Eventually(a.Done(), soon).Should(BeClosed(), "an unused session is closed")
	g.Eventually(p.Machines.Keys(), soon).Should(Receive(Equal(hypervisor.Key{Name: "a"})))

	p.RequeueClusters("b")
	var keys []hypervisor.Key
	for range 2 {
		var key hypervisor.Key
		g.Eventually(p.Clusters.Keys(), soon).Should(Receive(&key))
		keys = append(keys, key)
	}
	g.Expect(keys).To(ConsistOf(hypervisor.Key{Name: "one"}, hypervisor.Key{Name: "two"}))

	p.CloseUnused(time.Now())
	g.Expect(b.Done()).NotTo(BeClosed())
	p.CloseUnused(time.Now().Add(2 * Idle))
	g.Expect(b.Done()).To(BeClosed())
	_, err := p.Open("c", "server", hypervisor.Key{Name: "one"}, func(*CreationQueue) (*stub, error) { return nil, errors.New("no") })
	g.Expect(err).To(MatchError("no"))
	c := open("c", "one")
	g.Expect(p.Len()).To(Equal(1))
	p.Close()
	g.Expect(c.Done()).To(BeClosed())
	g.Expect(p.Len()).To(BeZero())
}

// A machine whose cluster moves to another server must not block creations at
// the previous server; new credentials change no slot.
func TestPoolKeepsCreationQueueOfServer(t *testing.T) {
	g, p := NewWithT(t), NewPool[*stub](1)
	defer p.Close()
	machine, other := hypervisor.Key{Name: "m"}, hypervisor.Key{Name: "other"}
	open := func(id, server string) *CreationQueue {
		s, err := p.Open(id, server, hypervisor.Key{Name: "cluster"}, func(t *CreationQueue) (*stub, error) {
			return &stub{done: make(chan struct{}), key: machine, server: server, creations: t}, nil
		})
		g.Expect(err).NotTo(HaveOccurred())
		return s.creations
	}
	there := open("a", "there")
	g.Expect(there.Acquire(machine)).To(BeTrue())
	g.Expect(open("b", "there")).To(BeIdenticalTo(there), "sessions of one server share its creation queue")
	g.Expect(there.Acquire(other)).To(BeFalse(), "new credentials do not release the slot")
	g.Expect(open("c", "elsewhere")).NotTo(BeIdenticalTo(there))
	g.Expect(there.Acquire(other)).To(BeTrue())
}

func TestFeed(t *testing.T) {
	g, f := NewWithT(t), NewFeed()
	key := func(i int) hypervisor.Key { return hypervisor.Key{Name: strconv.Itoa(i)} }
	for i := range 3 {
		f.Add(key(i), key(0))
	}
	g.Expect(f.Keys()).To(Equal(f.Keys()), "the channel is always the same")
	for i := range 3 {
		g.Eventually(f.Keys(), soon).Should(Receive(Equal(key(i))))
	}
	g.Consistently(f.Keys(), "20ms").ShouldNot(Receive())
	f.Add(key(0))
	g.Eventually(f.Keys(), soon).Should(Receive(Equal(key(0))))
}
