package controlplane

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
)

// endpointMoves are the moves of the endpoint's address off machines to be deleted,
// by machine. They are kept in memory only: after a restart all moves are tried
// again, which only costs time.
type endpointMoves struct {
	mu sync.Mutex
	by map[types.UID]plan.EndpointMove
}

// of returns the move off a machine.
func (h *endpointMoves) of(machine types.UID) plan.EndpointMove {
	h.mu.Lock()
	defer h.mu.Unlock()
	move := h.by[machine]
	move.Tried = slices.Clone(move.Tried)
	return move
}

// note changes the record of the move off a machine.
func (h *endpointMoves) note(machine types.UID, change func(move *plan.EndpointMove)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[types.UID]plan.EndpointMove{}
	}
	move := h.by[machine]
	change(&move)
	h.by[machine] = move
}

// forget deletes the record of a machine.
func (h *endpointMoves) forget(machine types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, machine)
}
