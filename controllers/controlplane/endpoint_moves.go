package controlplane

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// endpointMoves are the moves of the endpoint's address off machines to be deleted,
// by machine. They are kept in memory only: after a restart all moves are tried
// again, which only costs time.
type endpointMoves struct {
	mu sync.Mutex
	by map[types.UID]endpointMove
}

type endpointMove struct {
	since time.Time
	tried sets.Set[string]
}

// begin returns since when a machine waits for another one to take the address:
// now, if it did not wait yet.
func (h *endpointMoves) begin(machine types.UID, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	begun, ok := h.by[machine]
	if !ok {
		begun = endpointMove{since: now, tried: sets.Set[string]{}}
		if h.by == nil {
			h.by = map[types.UID]endpointMove{}
		}
		h.by[machine] = begun
	}
	return begun.since
}

// tried returns the nodes that the address was moved to meanwhile.
func (h *endpointMoves) tried(machine types.UID) sets.Set[string] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[machine].tried.Clone()
}

// note records a node that the address was moved to.
func (h *endpointMoves) note(machine types.UID, node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if begun, ok := h.by[machine]; ok {
		begun.tried.Insert(node)
	}
}

// forget deletes the state of a machine.
func (h *endpointMoves) forget(machine types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, machine)
}
