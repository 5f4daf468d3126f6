package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// shutdownRequests remembers which guests received a shutdown request. After a restart of the manager
// each guest gets one more request.
type shutdownRequests struct {
	mu    sync.Mutex
	known map[types.NamespacedName]shutdownRequest
}

type shutdownRequest struct {
	at          time.Time
	unreachable bool
}

// setSent records that the guest received a shutdown request.
func (g *shutdownRequests) setSent(key types.NamespacedName, at time.Time) {
	g.set(key, shutdownRequest{at: at})
}

// setUnreachable records that the guest cannot receive shutdown requests.
func (g *shutdownRequests) setUnreachable(key types.NamespacedName) {
	g.set(key, shutdownRequest{unreachable: true})
}

func (g *shutdownRequests) set(key types.NamespacedName, of shutdownRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = map[types.NamespacedName]shutdownRequest{}
	}
	g.known[key] = of
}

// isUnreachable reports whether the guest cannot receive shutdown requests.
func (g *shutdownRequests) isUnreachable(key types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[key].unreachable
}

// untilNext returns the time until the next shutdown request to the guest.
func (g *shutdownRequests) untilNext(key types.NamespacedName, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	of, known := g.known[key]
	if !known {
		return 0
	}
	return of.at.Add(reconcile.PollInterval).Sub(now)
}

func (g *shutdownRequests) forget(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, key)
}
