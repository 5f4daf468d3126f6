package vcenter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

var serviceInstance = vim25.ServiceInstance

// work is the work of a task. The steps run without the inventory's lock; each
// takes the lock where it reads or writes.
type work struct {
	method        string
	descriptionID string
	vm            *simulator.VirtualMachine
	// on is the object of the task, if it is not a VM.
	on mo.Entity
	// shared tasks may run beside others on the same VM.
	shared bool
	// slots are the objects that the task needs a slot on. It is queued until it has
	// them.
	slots []ref
	// check fails the task at once.
	check func(*simulator.Context) *failure
	// run does it, after the method's delay.
	run func(task types.ManagedObjectReference) (types.AnyType, *failure)
}

// target is the object of the task.
func (w *work) target() mo.Entity {
	if w.on != nil {
		return w.on
	}
	return w.vm
}

// startTask makes a task and runs it in the background. The caller holds the
// inventory.
func (s *Server) startTask(ctx *simulator.Context, w work) types.ManagedObjectReference {
	number := s.tasks.Add(1)
	id := fmt.Sprintf("task-%d", 100000+number) // clear of the simulator's own
	target := w.target()
	task := simulator.CreateTask(target, w.method, nil)
	task.Self = types.ManagedObjectReference{Type: "Task", Value: id}
	task.Info.Key = id
	task.Info.Task = task.Self
	task.Info.Name = w.method
	task.Info.DescriptionId = w.descriptionID
	task.Info.EntityName = entityName(target)
	task.Info.EventChainId = int32(number)
	task.Info.Reason = &types.TaskReasonUser{UserName: ctx.Session.UserName}
	s.list(ctx, task)

	var refused *failure
	key := target.Reference().Value
	switch {
	case w.shared:
	case s.busy[key] != "":
		refused = fail(&types.TaskInProgress{Task: types.ManagedObjectReference{Type: "Task", Value: s.busy[key]}})
	default:
		s.busy[key] = id
	}
	place := s.queue.join(w.slots)
	s.wg.Go(func() {
		defer s.queue.leave(place)
		if !s.await(place) {
			refused = fail(&types.RequestCanceled{})
		}
		s.runTask(task, w, refused)
	})
	return task.Self
}

func (s *Server) runTask(task *simulator.Task, w work, refused *failure) {
	s.locked(func(ctx *simulator.Context) {
		if task.Info.State != types.TaskInfoStateQueued {
			refused = fail(&types.RequestCanceled{}) // by the client, while it was queued
			return
		}
		ctx.Map.AtomicUpdate(ctx, task, []types.PropertyChange{
			{Name: "info.state", Val: types.TaskInfoStateRunning},
			{Name: "info.startTime", Val: time.Now()},
		})
		if refused == nil && w.check != nil {
			refused = w.check(ctx)
		}
	})
	var result types.AnyType
	if refused == nil {
		result, refused = s.perform(task.Self, w)
	}
	s.locked(func(ctx *simulator.Context) {
		s.endTask(ctx, task, result, refused)
		at := w.target().Reference()
		if s.busy[at.Value] == task.Self.Value {
			delete(s.busy, at.Value)
		}
		s.watch.touch(at)
	})
}

func (s *Server) perform(task types.ManagedObjectReference, w work) (types.AnyType, *failure) {
	defer s.taskCounter.start(w.method)()
	if !s.sleep(s.delays.of(w.method)) {
		return nil, fail(&types.RequestCanceled{})
	}
	if injected := s.faults.take(w.method); injected != nil {
		return nil, injected
	}
	return w.run(task)
}

func (s *Server) endTask(ctx *simulator.Context, task *simulator.Task, result types.AnyType, refused *failure) {
	if task.Info.State != types.TaskInfoStateRunning {
		return // canceled meanwhile
	}
	changes := []types.PropertyChange{
		{Name: "info.completeTime", Val: time.Now()},
		{Name: "info.state", Val: types.TaskInfoStateSuccess},
	}
	if result != nil {
		changes = append(changes, types.PropertyChange{Name: "info.result", Val: result})
	}
	if refused != nil {
		changes = append(changes[:1],
			types.PropertyChange{Name: "info.error", Val: types.LocalizedMethodFault{
				Fault: refused.fault, LocalizedMessage: refused.message,
			}},
			types.PropertyChange{Name: "info.state", Val: types.TaskInfoStateError})
	}
	ctx.Map.AtomicUpdate(ctx, task, changes)
}

// sleep waits; false if the server stopped or restarted first.
func (s *Server) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.interruption.next():
		return false
	case <-s.ctx.Done():
		return false
	}
}

// inner runs simulator calls whose own tasks must not be visible: it waits for
// those tasks and removes them from the lists of recent tasks. The caller holds
// the inventory, so no request reads the lists meanwhile.
func (s *Server) inner(ctx *simulator.Context, call func() types.ManagedObjectReference) (types.AnyType, *failure) {
	manager := taskManager(ctx)
	listed := slices.Clone(manager.RecentTask)
	before := refSet(listed)

	outer := ctx.Map.Get(call()).(*simulator.Task)
	await(ctx, outer)

	inside := map[types.ManagedObjectReference]bool{}
	for _, ref := range manager.RecentTask {
		if before[ref] {
			continue
		}
		inside[ref] = true
		if task, ok := ctx.Map.Get(ref).(*simulator.Task); ok {
			await(ctx, task)
			hideFrom(ctx, task.Info.Entity, inside)
			ctx.Map.Remove(ctx, ref)
		}
	}
	manager.RecentTask = listed
	if outer.Info.Error != nil {
		return nil, fail(outer.Info.Error.Fault)
	}
	return outer.Info.Result, nil
}

// await waits until a task of the simulator's own has ended. The simulator's
// way of waiting takes ten milliseconds at least, and the whole inventory with
// it.
func await(ctx *simulator.Context, task *simulator.Task) {
	often := time.NewTicker(100 * time.Microsecond)
	defer often.Stop()
	for done := false; ; <-often.C {
		apart := &simulator.Context{} // the executor of the task locks it too
		ctx.Map.WithLock(apart, task, func() {
			done = task.Info.State == types.TaskInfoStateSuccess || task.Info.State == types.TaskInfoStateError
		})
		if done {
			return
		}
	}
}

func hideFrom(ctx *simulator.Context, entity *types.ManagedObjectReference, tasks map[types.ManagedObjectReference]bool) {
	if entity == nil {
		return
	}
	if e, ok := ctx.Map.Get(*entity).(interface{ Entity() *mo.ManagedEntity }); ok {
		e.Entity().RecentTask = without(e.Entity().RecentTask, tasks)
	}
}

func refSet(refs []types.ManagedObjectReference) map[types.ManagedObjectReference]bool {
	set := make(map[types.ManagedObjectReference]bool, len(refs))
	for _, ref := range refs {
		set[ref] = true
	}
	return set
}

// without never changes refs in place: a client's answer may share it.
func without(refs []types.ManagedObjectReference, drop map[types.ManagedObjectReference]bool) []types.ManagedObjectReference {
	var kept []types.ManagedObjectReference
	for _, ref := range refs {
		if !drop[ref] {
			kept = append(kept, ref)
		}
	}
	return kept
}

// taskDescription is vCenter's description of a VM's task: CloneVM_Task is
// VirtualMachine.clone.
func taskDescription(method string) string {
	verb := strings.TrimSuffix(strings.TrimSuffix(method, "_Task"), "VM")
	if verb == "Reconfig" {
		verb = "reconfigure"
	}
	return "VirtualMachine." + strings.ToLower(verb[:1]) + verb[1:]
}
