package controlplane

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// handovers are what was tried to move the endpoint's address off machines that
// go, by machine. They are kept in memory only: after a start all is tried anew,
// which costs time and nothing else.
type handovers struct {
	mu sync.Mutex
	by map[types.UID]handover
}

type handover struct {
	since time.Time
	tried sets.Set[string]
}

// begin returns since when a machine waits for another one to take the address:
// now, if it did not wait yet.
func (h *handovers) begin(machine types.UID, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	begun, ok := h.by[machine]
	if !ok {
		begun = handover{since: now, tried: sets.Set[string]{}}
		if h.by == nil {
			h.by = map[types.UID]handover{}
		}
		h.by[machine] = begun
	}
	return begun.since
}

// tried are the nodes that the address was given to meanwhile.
func (h *handovers) tried(machine types.UID) sets.Set[string] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[machine].tried.Clone()
}

// note remembers a node that the address was given to.
func (h *handovers) note(machine types.UID, node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if begun, ok := h.by[machine]; ok {
		begun.tried.Insert(node)
	}
}

// forget drops what is known of a machine.
func (h *handovers) forget(machine types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, machine)
}
