package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// guests remembers which guests received a shutdown request. After a restart of the manager each guest
// gets one more request.
type guests struct {
	mu    sync.Mutex
	known map[types.NamespacedName]guest
}

type guest struct {
	at   time.Time
	deaf bool
}

// asked records that the guest received a shutdown request.
func (g *guests) asked(key types.NamespacedName, at time.Time) { g.note(key, guest{at: at}) }

// deaf records that the guest cannot receive shutdown requests.
func (g *guests) deaf(key types.NamespacedName) { g.note(key, guest{deaf: true}) }

func (g *guests) note(key types.NamespacedName, of guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = map[types.NamespacedName]guest{}
	}
	g.known[key] = of
}

// isDeaf reports whether the guest cannot receive shutdown requests.
func (g *guests) isDeaf(key types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[key].deaf
}

// rest returns the time until the next shutdown request to the guest.
func (g *guests) rest(key types.NamespacedName, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	of, known := g.known[key]
	if !known {
		return 0
	}
	return of.at.Add(loop.Net).Sub(now)
}

func (g *guests) forget(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, key)
}
