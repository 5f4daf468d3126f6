package vcenter

import (
	"slices"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// queue limits how many clones run on each host and datastore at the same time,
// as vCenter does. The tasks of all others stay queued, in their order.
type queue struct {
	mu sync.Mutex
	// limits are the clones that may run at the same time on an object, by its
	// type.
	limits  map[string]int
	used    map[ref]int
	waiting []*queued
}

// queued is a task that waits for a slot on each of its objects.
type queued struct {
	at []ref
	// granted is closed once it has them.
	granted chan struct{}
}

func newQueue(perHost, perDatastore int) *queue {
	return &queue{limits: map[string]int{"HostSystem": perHost, "Datastore": perDatastore}, used: map[ref]int{}}
}

// join requests a slot on each object.
func (q *queue) join(at []ref) *queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := &queued{at: at, granted: make(chan struct{})}
	q.waiting = append(q.waiting, one)
	q.grant()
	return one
}

// leave gives the slots of a task back, or its place in the queue.
func (q *queue) leave(one *queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, one); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else {
		for _, at := range one.at {
			q.used[at]--
		}
	}
	q.grant()
}

// grant gives slots to the tasks that can have all of theirs. A task whose host is
// in use does not hold up one for another host. The caller holds mu.
func (q *queue) grant() {
	q.waiting = slices.DeleteFunc(q.waiting, func(one *queued) bool {
		if slices.ContainsFunc(one.at, func(at ref) bool { return q.used[at] >= q.limits[at.Type] }) {
			return false
		}
		for _, at := range one.at {
			q.used[at]++
		}
		close(one.granted)
		return true
	})
}

// await waits until a queued task has its slots; false if the server stopped or
// restarted first.
func (s *Server) await(one *queued) bool {
	select {
	case <-one.granted:
		return true
	case <-s.interruption.next():
		return false
	case <-s.ctx.Done():
		return false
	}
}

// place chooses the host of a clone and returns it with the clone's datastore.
func (c *clone) place(ctx *simulator.Context) []ref {
	location := &c.req.Spec.Location
	if c.host = location.Host; c.host == nil {
		c.host = c.s.pickHost(ctx, location.Pool)
	}
	at := []ref{c.datastore()}
	switch {
	case c.host != nil:
		at = append(at, *c.host)
	case c.source.Runtime.Host != nil:
		at = append(at, *c.source.Runtime.Host)
	}
	return at
}

// datastore is where the disks of a clone go.
func (c *clone) datastore() types.ManagedObjectReference {
	if at := c.req.Spec.Location.Datastore; at != nil {
		return *at
	}
	return c.source.Datastore[0]
}
