package host

import (
	"context"
	"log"
	"sync"
	"time"
)

// Observer receives the events of a running host from one goroutine.
type Observer interface {
	// Addressed is called with all addresses when they have changed.
	Addressed(ctx context.Context, h *Host, addresses []Address) error
	// Looked is called periodically, for state that a host does not report
	// itself.
	Looked(ctx context.Context, h *Host) error
	// Stopped is called if the host ended without a request.
	Stopped() error
}

// Guests are running hosts that stand for the VMs of a hypervisor, by the names
// of their disks.
type Guests[O Observer] struct {
	runner *Runner
	every  time.Duration

	mu      sync.Mutex
	running map[string]*guest[O]
}

// guest is a running host.
type guest[O Observer] struct {
	*Host
	observer O
	// followed is closed when the observer receives no more events.
	followed chan struct{}

	mu       sync.Mutex
	stopping bool
}

// NewGuests returns Guests that boot hosts with runner, and look at each of them
// every so often.
func NewGuests[O Observer](runner *Runner, every time.Duration) *Guests[O] {
	return &Guests[O]{runner: runner, every: every, running: map[string]*guest[O]{}}
}

// Get returns a running host and its observer.
func (g *Guests[O]) Get(disk string) (*Host, O, bool) {
	if running := g.get(disk); running != nil {
		return running.Host, running.observer, true
	}
	var none O
	return nil, none, false
}

func (g *Guests[O]) get(disk string) *guest[O] {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running[disk]
}

// PowerOn boots a host and reports its events to the observer until it is off.
// ctx bounds both.
func (g *Guests[O]) PowerOn(ctx context.Context, spec Spec, observer O) error {
	h, err := g.runner.PowerOn(ctx, spec)
	if err != nil {
		return err
	}
	running := &guest[O]{Host: h, observer: observer, followed: make(chan struct{})}
	g.mu.Lock()
	g.running[spec.Disk] = running
	g.mu.Unlock()
	go g.follow(ctx, spec, running)
	return nil
}

// PowerOff ends a host. Its observer has been told all by then. A host that is
// off already is no error.
func (g *Guests[O]) PowerOff(ctx context.Context, disk string, soft bool) error {
	running := g.get(disk)
	if running == nil {
		return nil
	}
	running.mu.Lock()
	running.stopping = true
	running.mu.Unlock()
	if err := running.PowerOff(ctx, soft); err != nil {
		return err
	}
	select {
	case <-running.followed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Destroy removes a host's disk.
func (g *Guests[O]) Destroy(ctx context.Context, disk string) error {
	return g.runner.Destroy(ctx, disk)
}

func (g *Guests[O]) follow(ctx context.Context, spec Spec, running *guest[O]) {
	defer close(running.followed)
	ticker := time.NewTicker(g.every)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case addresses, ok := <-running.Changes():
			if !ok {
				g.ended(spec, running)
				return
			}
			err = running.observer.Addressed(ctx, running.Host, addresses)
		case <-ticker.C:
			err = running.observer.Looked(ctx, running.Host)
		}
		if err != nil {
			log.Printf("host of %s: %v", spec.Name, err)
		}
	}
}

func (g *Guests[O]) ended(spec Spec, running *guest[O]) {
	g.mu.Lock()
	if g.running[spec.Disk] == running {
		delete(g.running, spec.Disk)
	}
	g.mu.Unlock()
	running.mu.Lock()
	stopping := running.stopping
	running.mu.Unlock()
	if stopping {
		return
	}
	if err := running.observer.Stopped(); err != nil {
		log.Printf("host of %s: %v", spec.Name, err)
	}
}
