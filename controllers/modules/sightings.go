package modules

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// sightings remembers which objects were seen ready, and at which generation. The status that Flux
// reports is not sufficient: while Flux processes a new generation for the first time, its last
// success is still about the previous one. A restart clears the memory, so that a module that Flux is
// checking at that moment is not ready until Flux has finished.
type sightings struct {
	mu    sync.Mutex
	ready map[key]map[types.UID]int64
}

// update records which of a Cluster's objects are ready, sets on each whether it was ready before, and
// drops deleted objects.
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
