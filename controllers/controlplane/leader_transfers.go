package controlplane

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// maxTransfers is how often the transfer of a leadership is tried before the
// member is removed with it: etcd then elects another leader, which takes a
// second.
const maxTransfers = 3

// leaderTransfers counts failed leadership transfers by control plane and member. It
// is kept in memory only: after a restart the transfers are tried again.
type leaderTransfers struct {
	mu    sync.Mutex
	tried map[types.UID]map[uint64]int
}

// note counts a failed transfer.
func (c *leaderTransfers) note(of types.UID, member uint64) {
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

// members returns the members whose leadership is not transferred any more.
func (c *leaderTransfers) members(of types.UID) map[uint64]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	given := map[uint64]bool{}
	for member, tried := range c.tried[of] {
		given[member] = tried >= maxTransfers
	}
	return given
}

// forget deletes the count of a member, or of a whole control plane if member
// is 0.
func (c *leaderTransfers) forget(of types.UID, member uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.tried[of], member); member == 0 {
		delete(c.tried, of)
	}
}
