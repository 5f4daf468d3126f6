package vsphere

import (
	"context"
	"time"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Sync starts to reconcile the objects around the VM of m, one step a call.
// Once the node has joined, it removes the user data. Then it reconciles the
// anti-affinity rule of the machine's group and its VM group, and then its
// tags and attributes. The user data of a control plane machine holds the keys
// of all CAs, so its removal does not wait for steps that may never succeed.
// The VM runs on meanwhile.
func (d *driver) Sync(ctx context.Context, m *infrav1.NovaVSphereMachine, joined bool) error {
	id, err := instanceUUID(d.clusterID, keyOf(m))
	if err != nil {
		return err
	}
	inv := d.session.inv
	d.want(id, m)
	if state, vm := d.state(id, m); d.pendingUpgrade(id, m, state) != "" {
		return d.upgrade(ctx, id, m, vm)
	}
	switch due, at := inv.due(id, keyOf(m), joined); due {
	case dueRule:
		if inv.begin(id, keyOf(m), settling, "Changing the anti-affinity rule or the VM group of the machine") {
			d.session.rules.join(at, id)
		}
	case dueMarks:
		if inv.begin(id, keyOf(m), settling, "Setting tags and custom attributes") {
			d.session.marks.set(id)
		}
	case dueScrub:
		return d.scrub(ctx, id, m, at)
	case dueNothing:
	}
	return nil
}

// duty is the next step that is due around a VM.
type duty int

const (
	dueNothing duty = iota
	dueRule
	dueMarks
	dueScrub
)

// due returns the next step that is due around a machine's VM, and its object:
// the compute cluster, or the VM.
func (i *inventory) due(id uuid.UUID, key hypervisor.Key, joined bool) (duty, ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	s := i.look(id, m)
	vm := i.world.byID[id]
	info := i.world.vms[vm]
	if info == nil || s.lost != nil || s.vm.State != hypervisor.Running {
		return dueNothing, ref{}
	}
	at, _ := i.world.place(info)
	switch {
	case joined && info.holdsUserData():
		return dueScrub, vm
	case i.ruleDue(vm, m, info) || i.groupDue(vm, m, info):
		return dueRule, at
	case i.marksDue(m, info) != "":
		return dueMarks, vm
	default:
		return dueNothing, ref{}
	}
}

// finish ends the actions of machines that started no task. err is the error
// with which they failed, if they did.
func (i *inventory) finish(err *hypervisor.Error, ids ...uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		m := i.machines[id]
		switch {
		case m == nil || m.act == nil || m.act.task != (ref{}):
		case err == nil:
			m.act = nil
		default:
			m.act.err = err
		}
	}
	i.tell(ids)
}

// waitFor waits for d; it returns false if the session ended first.
func (s *session) waitFor(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.done:
		return false
	}
}
