package sessions

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/fairqueue"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Idle is the time after which an unused session is closed.
const Idle = time.Hour

// Closer is a session in a Pool.
type Closer interface {
	// Stop ends it in the background, and Done is closed when it has ended.
	Stop()
	Done() <-chan struct{}
	// Keys returns the machines that use it.
	Keys() []hypervisor.Key
	// Server is the address of the endpoint.
	Server() string
}

// CreationQueue limits the creations at one endpoint, over all its sessions.
type CreationQueue = fairqueue.Queue[hypervisor.Key]

// Pool shares sessions between clusters. A connector embeds it: Start, Close, Changes and
// EndpointChanges are those of every provider.
type Pool[S Closer] struct {
	// Machines and Clusters receive the machines and clusters to reconcile.
	Machines, Clusters *Feed

	maxCreations int

	mu       sync.Mutex
	sessions map[string]S
	lastUsed map[string]time.Time
	// users contains the session of each cluster.
	users map[hypervisor.Key]string
	// creations contains the creation slots by server.
	creations map[string]*CreationQueue
}

// NewPool returns a Pool without sessions. At most maxCreations VMs are created
// at one endpoint simultaneously; zero means no limit.
func NewPool[S Closer](maxCreations int) *Pool[S] {
	return &Pool[S]{
		Machines: NewFeed(), Clusters: NewFeed(), maxCreations: maxCreations, creations: map[string]*CreationQueue{},
		sessions: map[string]S{}, lastUsed: map[string]time.Time{}, users: map[hypervisor.Key]string{},
	}
}

// Changes delivers the keys of machines whose VM changed.
func (p *Pool[S]) Changes() <-chan hypervisor.Key { return p.Machines.Keys() }

// EndpointChanges delivers the keys of clusters whose endpoint became reachable or
// unreachable.
func (p *Pool[S]) EndpointChanges() <-chan hypervisor.Key { return p.Clusters.Keys() }

// Start closes unused sessions, and all sessions when ctx ends, so that a manager can
// run a connector.
func (p *Pool[S]) Start(ctx context.Context) error {
	defer p.Close()
	ticker := time.NewTicker(Idle / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			p.CloseUnused(now)
		}
	}
}

// ID returns the ID of the session with the given settings. It does not reveal
// them.
func ID(settings ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", settings))
	return string(sum[:])
}

// Open returns the session of an endpoint for a cluster, and releases the
// cluster's previous session if that was another. The ID identifies a session
// with all its parameters, including server and credentials. The function that
// opens a session gets the creation slots of its server.
func (p *Pool[S]) Open(id, server string, user hypervisor.Key, open func(*CreationQueue) (S, error)) (S, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.sessions[id]
	if !ok {
		var err error
		if s, err = open(p.creationQueue(server)); err != nil {
			return s, err
		}
		p.sessions[id] = s
	}
	before := p.users[user]
	p.users[user], p.lastUsed[id] = id, time.Now()
	if before != "" && before != id && !slices.Contains(slices.Collect(maps.Values(p.users)), before) {
		p.evict(before, server)
	}
	return s, nil
}

// creationQueue returns the creation slots of a server, which all its sessions share.
// The caller holds the lock.
func (p *Pool[S]) creationQueue(server string) *CreationQueue {
	server = Canonical(server)
	t, ok := p.creations[server]
	if !ok {
		t = fairqueue.New(p.maxCreations, Label(server), func(key hypervisor.Key) string { return key.Namespace },
			func(key hypervisor.Key) { p.Machines.Add(key) })
		p.creations[server] = t
	}
	return t
}

// Len returns the number of sessions.
func (p *Pool[S]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// RequeueClusters queues the clusters that use a session.
func (p *Pool[S]) RequeueClusters(id string) {
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
	clear(p.lastUsed)
	clear(p.users)
	for server, t := range p.creations {
		t.Close()
		delete(p.creations, server)
	}
	p.mu.Unlock()
	for _, s := range all {
		s.Stop()
	}
	for _, s := range all {
		<-s.Done()
	}
}

// CloseUnused closes the sessions that have not been used since Idle before now:
// their clusters are deleted, and their credentials must not be tried
// indefinitely.
func (p *Pool[S]) CloseUnused(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, at := range p.lastUsed {
		if now.Sub(at) > Idle {
			p.evict(id, "")
		}
	}
}

// evict closes a session in the background. Its existing machines and clusters
// are reconciled with another session: with one of the same server, they keep
// their creation slots. The caller holds the lock.
func (p *Pool[S]) evict(id, server string) {
	s, ok := p.sessions[id]
	delete(p.sessions, id)
	delete(p.lastUsed, id)
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
			p.creationQueue(s.Server()).Release(key)
		}
	}
	p.Machines.Add(keys...)
}
