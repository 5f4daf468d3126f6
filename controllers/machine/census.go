package machine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// census counts machines by how far their VM is, for metrics. A machine is
// counted from its first reconcile on.
type census struct {
	mu    sync.Mutex
	known map[types.NamespacedName]standing
}

// standing is where a machine is counted.
type standing struct{ kind, state string }

// count moves a machine to where it belongs.
func (c *census) count(key types.NamespacedName, kind, state string) {
	c.move(key, standing{kind: kind, state: state})
}

// forget counts a machine no more.
func (c *census) forget(key types.NamespacedName) { c.move(key, standing{}) }

func (c *census) move(key types.NamespacedName, to standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.known[key]
	if from == to {
		return
	}
	if from != (standing{}) {
		machines.WithLabelValues(from.kind, from.state).Dec()
	}
	if to == (standing{}) {
		delete(c.known, key)
		return
	}
	machines.WithLabelValues(to.kind, to.state).Inc()
	if c.known == nil {
		c.known = map[types.NamespacedName]standing{}
	}
	c.known[key] = to
}
