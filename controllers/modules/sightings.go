package modules

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// sightings remembers which objects were seen ready, and at which generation.
// What Flux says of itself does not do: while it looks at a new generation for
// the first time, what it tells of its last success is still about the one
// before. A restart forgets it, so that a module that Flux looks at in that
// moment counts as not ready until Flux has looked.
type sightings struct {
	mu    sync.Mutex
	ready map[key]map[types.UID]int64
}

// update notes which of a Cluster's objects are ready, tells each whether it
// was before, and drops what is gone.
func (s *sightings) update(cluster key, all map[key][]*piece) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.ready[cluster], map[types.UID]int64{}
	for _, pieces := range all {
		for _, p := range pieces {
			uid, generation := p.object.GetUID(), p.object.GetGeneration()
			p.made = before[uid] == generation
			if ready, _ := p.ready(); ready {
				p.made, now[uid] = true, generation
			}
		}
	}
	if s.ready == nil {
		s.ready = map[key]map[types.UID]int64{}
	}
	if s.ready[cluster] = now; len(now) == 0 {
		delete(s.ready, cluster)
	}
}
