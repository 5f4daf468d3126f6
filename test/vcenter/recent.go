package vcenter

import (
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
)

// maxEnded is how many tasks that have ended are listed.
const maxEnded = 1000

// list adds a task to the recent ones. Tasks that are queued or running stay listed.
// Of those that have ended, old ones are forgotten, so that the memory of a server
// that runs for days is bounded. The caller holds the inventory.
func (s *Server) list(ctx *simulator.Context, task *simulator.Task) {
	manager := taskManager(ctx)
	all := append(slices.Clone(manager.RecentTask), task.Self)
	ctx.WithLock(*task.Info.Entity, func() { ctx.Map.Put(task) })
	manager.RecentTask = all // the simulator keeps 200, also if the others have not ended
	s.forget(ctx, s.old(ctx, all))
}

// old returns the tasks that vCenter lists no longer.
func (s *Server) old(ctx *simulator.Context, all []ref) map[ref]bool {
	var ended []ref
	old := map[ref]bool{}
	for _, at := range all {
		task, ok := ctx.Map.Get(at).(*simulator.Task)
		if !ok || task.Info.CompleteTime == nil {
			continue
		}
		if time.Since(*task.Info.CompleteTime) > s.opts.RecentFor {
			old[at] = true
		} else {
			ended = append(ended, at)
		}
	}
	for i := range len(ended) - maxEnded {
		old[ended[i]] = true
	}
	return old
}

// forget removes tasks, and their lists no longer name them.
func (s *Server) forget(ctx *simulator.Context, tasks map[ref]bool) {
	if len(tasks) == 0 {
		return
	}
	manager := taskManager(ctx)
	manager.RecentTask = without(manager.RecentTask, tasks)
	for at := range tasks {
		if task, ok := ctx.Map.Get(at).(*simulator.Task); ok {
			hideFrom(ctx, task.Info.Entity, tasks)
			ctx.Map.Remove(ctx, at)
		}
	}
	s.watch.touch(manager.Self)
}

func taskManager(ctx *simulator.Context) *simulator.TaskManager {
	content := ctx.Map.Get(serviceInstance).(*simulator.ServiceInstance).Content
	return ctx.Map.Get(*content.TaskManager).(*simulator.TaskManager)
}
