package controlplane

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// movesTried is how often a leadership is tried to be moved before the member
// goes with it: etcd elects another leader then, which takes a second.
const movesTried = 3

// clinging counts, by control plane and member, how often a leadership could
// not be moved. It is kept in memory only: after a start the moves are tried
// anew.
type clinging struct {
	mu    sync.Mutex
	tried map[types.UID]map[uint64]int
}

// note counts one that failed.
func (c *clinging) note(of types.UID, member uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tried == nil {
		c.tried = map[types.UID]map[uint64]int{}
	}
	if c.tried[of] == nil {
		c.tried[of] = map[uint64]int{}
	}
	c.tried[of][member]++
}

// members are those whose leadership is not to be moved any more.
func (c *clinging) members(of types.UID) map[uint64]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	given := map[uint64]bool{}
	for member, tried := range c.tried[of] {
		given[member] = tried >= movesTried
	}
	return given
}

// forget drops what is known of a member, or of a whole control plane if it is
// 0.
func (c *clinging) forget(of types.UID, member uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.tried[of], member); member == 0 {
		delete(c.tried, of)
	}
}
