package flux

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// ReadyObjects remembers which objects were seen ready, and at which generation. The status that Flux
// reports is not sufficient: while Flux processes a new generation for the first time, its last
// success is still about the previous one. A restart clears the memory, so that a module that Flux is
// checking at that moment is not ready until Flux has finished.
type ReadyObjects struct {
	reconcile.Memory[client.ObjectKey, map[types.UID]int64]
}

// MarkReadyBefore records which of a Cluster's objects are ready, sets on each whether it was ready
// before, and drops deleted objects.
func (s *ReadyObjects) MarkReadyBefore(cluster client.ObjectKey, all map[client.ObjectKey][]*Object) {
	before, _ := s.Get(cluster)
	now := map[types.UID]int64{}
	for _, objects := range all {
		for _, p := range objects {
			uid, generation := p.Object.GetUID(), p.Object.GetGeneration()
			p.readyBefore = before[uid] == generation
			if ready, _ := p.Ready(); ready {
				p.readyBefore, now[uid] = true, generation
			}
		}
	}
	if s.Set(cluster, now); len(now) == 0 {
		s.Forget(cluster)
	}
}
