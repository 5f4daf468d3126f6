package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// guests remembers which guests were asked to power themselves off. A restart
// forgets it, which asks them once more.
type guests struct {
	mu    sync.Mutex
	known map[types.NamespacedName]guest
}

type guest struct {
	at   time.Time
	deaf bool
}

// asked notes that the guest was asked.
func (g *guests) asked(key types.NamespacedName, at time.Time) { g.note(key, guest{at: at}) }

// deaf notes that the guest cannot be asked.
func (g *guests) deaf(key types.NamespacedName) { g.note(key, guest{deaf: true}) }

func (g *guests) note(key types.NamespacedName, of guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = map[types.NamespacedName]guest{}
	}
	g.known[key] = of
}

// isDeaf reports whether the guest is known not to listen.
func (g *guests) isDeaf(key types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[key].deaf
}

// rest is how long to leave the guest alone before it is asked again.
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
