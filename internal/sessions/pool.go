package sessions

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/turns"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Idle is after how long a session that nobody asks for is closed.
const Idle = time.Hour

// Closer is what a Pool needs of a session.
type Closer interface {
	// Stop ends it in the background, and Done is closed when it has ended.
	Stop()
	Done() <-chan struct{}
	// Keys are the machines that were asked about over it.
	Keys() []hypervisor.Key
	// Server is the address of the endpoint.
	Server() string
}

// Turns bound what is being made at one endpoint, over all its sessions.
type Turns = turns.Turns[hypervisor.Key]

// Pool shares sessions between clusters.
type Pool[S Closer] struct {
	// Machines and Clusters are told of machines and clusters to look at
	// again.
	Machines, Clusters *Feed

	maxCreations int

	mu       sync.Mutex
	sessions map[string]S
	asked    map[string]time.Time
	// users tells which session a cluster uses.
	users map[hypervisor.Key]string
	// turns are by server.
	turns map[string]*Turns
}

// NewPool returns a Pool without sessions. No more than maxCreations VMs are
// made at one endpoint at a time; zero means any number.
func NewPool[S Closer](maxCreations int) *Pool[S] {
	return &Pool[S]{
		Machines: NewFeed(), Clusters: NewFeed(), maxCreations: maxCreations, turns: map[string]*Turns{},
		sessions: map[string]S{}, asked: map[string]time.Time{}, users: map[hypervisor.Key]string{},
	}
}

// Run closes sessions that nobody asks for any more, and when ctx ends all.
func (p *Pool[S]) Run(ctx context.Context) {
	defer p.Close()
	sweep := time.NewTicker(Idle / 10)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-sweep.C:
			p.Sweep(now)
		}
	}
}

// Open returns the session of an endpoint for a cluster, and lets go of the
// one the cluster used before if that was another. The ID stands for all that
// makes a session what it is, server and credentials included. What opens one
// gets the turns at its server.
func (p *Pool[S]) Open(id, server string, user hypervisor.Key, open func(*Turns) (S, error)) (S, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.sessions[id]
	if !ok {
		var err error
		if s, err = open(p.turnsAt(server)); err != nil {
			return s, err
		}
		p.sessions[id] = s
	}
	before := p.users[user]
	p.users[user], p.asked[id] = id, time.Now()
	if before != "" && before != id && !slices.Contains(slices.Collect(maps.Values(p.users)), before) {
		p.evict(before, server)
	}
	return s, nil
}

// turnsAt returns the turns at a server, which all its sessions share. The
// caller holds the lock.
func (p *Pool[S]) turnsAt(server string) *Turns {
	server = Canonical(server)
	t, ok := p.turns[server]
	if !ok {
		t = turns.New(p.maxCreations, Label(server), func(key hypervisor.Key) string { return key.Namespace },
			func(key hypervisor.Key) { p.Machines.Add(key) })
		p.turns[server] = t
	}
	return t
}

// Len is the number of sessions.
func (p *Pool[S]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// Tell queues the clusters that use a session.
func (p *Pool[S]) Tell(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for user, used := range p.users {
		if used == id {
			p.Clusters.Add(user)
		}
	}
}

// Close ends all sessions, and waits until they have ended.
func (p *Pool[S]) Close() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.sessions))
	clear(p.sessions)
	clear(p.asked)
	clear(p.users)
	for server, t := range p.turns {
		t.Close()
		delete(p.turns, server)
	}
	p.mu.Unlock()
	for _, s := range all {
		s.Stop()
	}
	for _, s := range all {
		<-s.Done()
	}
}

// Sweep closes the sessions that nobody has asked for since Idle before now:
// their clusters are gone, and their credentials must not be tried for ever.
func (p *Pool[S]) Sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, at := range p.asked {
		if now.Sub(at) > Idle {
			p.evict(id, "")
		}
	}
}

// evict closes a session in the background. Its machines and clusters, as far
// as they still are, come back over another: one with the server, where their
// turns stay theirs. The caller holds the lock.
func (p *Pool[S]) evict(id, server string) {
	s, ok := p.sessions[id]
	delete(p.sessions, id)
	delete(p.asked, id)
	for user, used := range p.users {
		if used == id {
			delete(p.users, user)
			p.Clusters.Add(user)
		}
	}
	if !ok {
		return
	}
	s.Stop()
	keys := s.Keys()
	if Canonical(s.Server()) != Canonical(server) {
		for _, key := range keys {
			p.turnsAt(s.Server()).Release(key)
		}
	}
	p.Machines.Add(keys...)
}
