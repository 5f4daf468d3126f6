package controlplane

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// maxTransfers is how often the transfer of a leadership is tried before the
// member is removed with it: etcd then elects another leader, which takes a
// second.
const maxTransfers = 3

// leaderTransfers counts failed leadership transfers by control plane and member. It
// is kept in memory only: after a restart the transfers are tried again.
type leaderTransfers struct {
	reconcile.Memory[types.UID, map[uint64]int]
}

// note counts a failed transfer.
func (c *leaderTransfers) note(of types.UID, member uint64) {
	c.Update(of, func(tried *map[uint64]int) {
		if *tried == nil {
			*tried = map[uint64]int{}
		}
		(*tried)[member]++
	})
}

// members returns the members whose leadership is not transferred any more.
func (c *leaderTransfers) members(of types.UID) map[uint64]bool {
	counts, _ := c.Get(of)
	given := map[uint64]bool{}
	for member, tried := range counts {
		given[member] = tried >= maxTransfers
	}
	return given
}

// forget deletes the count of a member.
func (c *leaderTransfers) forget(of types.UID, member uint64) {
	counts, _ := c.Get(of)
	delete(counts, member)
}
