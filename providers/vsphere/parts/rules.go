package parts

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// RuleWorker changes rules and groups, with one request at a time for each
// compute cluster. A request has all changes that are due by then.
type RuleWorker struct {
	session Session
	inv     *inventory.Inventory
	queue   batches[types.ManagedObjectReference, uuid.UUID]
	State   ruleState
}

// NewRuleWorker returns the worker of a session that collects changes for a delay.
func NewRuleWorker(s Session, inv *inventory.Inventory, delay time.Duration) *RuleWorker {
	w := &RuleWorker{session: s, inv: inv, State: newRuleState()}
	w.queue = batches[types.ManagedObjectReference, uuid.UUID]{delay: delay, done: func() <-chan struct{} { return s.Done() }, process: w.change, drop: w.drop}
	return w
}

// Sync starts to change the rule of the machine's group and its VM group.
func (w *RuleWorker) Sync(id uuid.UUID, key hypervisor.Key) {
	if vm, at := w.inv.BeginSync(id, key, inventory.SyncRules, "Changing the anti-affinity rule or the VM group of the machine"); vm != (types.ManagedObjectReference{}) {
		w.queue.add(at, id)
	}
}

// Leave starts to change the rule of a machine's group before its VM is
// deleted, and reports whether that is necessary. If the other VMs of the rule
// are deleted too, or are fewer than two, the rule would otherwise stay and no
// controller would delete it.
func (w *RuleWorker) Leave(id uuid.UUID, key hypervisor.Key) bool {
	var at types.ManagedObjectReference
	leave := false
	w.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		at, leave = w.State.toLeave(o, id)
		return nil
	})
	if !leave {
		return false
	}
	if w.inv.Begin(id, key, inventory.Syncing, "Removing the anti-affinity rule of the machine's group") {
		w.queue.add(at, id)
	} else {
		w.keep(id)
	}
	return true
}

// keep records that a machine's rule was not changed after all: its VM must
// not be deleted before that.
func (w *RuleWorker) keep(id uuid.UUID) {
	w.inv.Locked(func(*cache.Objects) []uuid.UUID {
		if m := w.State.machines[id]; m != nil {
			m.left = false
		}
		return nil
	})
}

// drop ends the actions of machines because the session ends.
func (w *RuleWorker) drop(_ types.ManagedObjectReference, ids []uuid.UUID) {
	for _, id := range ids {
		w.keep(id)
		w.inv.End(id, types.ManagedObjectReference{}, nil)
	}
}

// change changes the rules of machines with one request and waits until the
// task has ended, so that the next change starts from its result.
func (w *RuleWorker) change(at types.ManagedObjectReference, ids []uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := w.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error { return w.inv.ReadIfStale(ctx, c, at) })
	if err != nil {
		w.fail(err, ids)
		return
	}
	var change clusterChange
	w.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		change = w.State.plan(o, at, ids)
		return nil
	})
	for id, group := range change.missing {
		w.inv.Finish(vcenter.AsError(spec.VMGroupNotFound(group)), id)
	}
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return change.missing[id] != "" })
	if len(change.spec.RulesSpec)+len(change.spec.GroupSpec) == 0 {
		w.inv.Finish(nil, ids...)
		return
	}
	task, err := w.reconfigure(ctx, at, &change.spec)
	if err != nil {
		w.markStale(at)
		w.fail(err, ids)
		return
	}
	ended := w.recordPending(at, task, change)
	for _, id := range ids {
		w.inv.End(id, task, nil)
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	w.endChange(at, task)
}

// fail ends the actions of machines with an error. It is not known whether the rule
// was changed, so it is changed again before a VM is deleted.
func (w *RuleWorker) fail(err error, ids []uuid.UUID) {
	w.inv.Locked(func(*cache.Objects) []uuid.UUID {
		w.State.leaveAgain(ids, err)
		return nil
	})
	w.inv.Finish(vcenter.AsError(vcenter.Classify(w.session.Server(), err)), ids...)
}

func (w *RuleWorker) reconfigure(ctx context.Context, at types.ManagedObjectReference, spec *types.ClusterConfigSpecEx) (task types.ManagedObjectReference, err error) {
	err = w.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		res, err := methods.ReconfigureComputeResource_Task(ctx, c, &types.ReconfigureComputeResource_Task{
			This: at, Modify: true, Spec: spec,
		})
		if err == nil {
			task = res.Returnval
		}
		return err
	})
	return task, err
}

// recordPending records the change that a task makes to a compute cluster. The
// channel is closed when the task has ended.
func (w *RuleWorker) recordPending(at, task types.ManagedObjectReference, change clusterChange) <-chan struct{} {
	w.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		w.State.pending[at] = pendingChange{clusterChange: change, task: task, of: o.Clusters[at]}
		return nil
	})
	return w.inv.AwaitTask(task)
}

// endChange records the end of a task on a compute cluster.
func (w *RuleWorker) endChange(at, task types.ManagedObjectReference) {
	w.inv.EndAwait(task)
	ok := false
	w.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		t := o.Tasks[task]
		ok = t != nil && t.Ended() && !t.Failed()
		return nil
	})
	if !ok {
		w.markStale(at)
	}
}

// markStale makes the worker read a compute cluster's rules before the next
// change.
func (w *RuleWorker) markStale(at types.ManagedObjectReference) {
	w.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		o.MarkStale(at)
		delete(w.State.pending, at)
		return nil
	})
}
