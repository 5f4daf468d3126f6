package vsphere

import (
	"context"
	"time"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Sync starts to reconcile the objects around the VM of m, one step a call.
// Once the node has joined, it removes the user data. Then it reconciles the
// anti-affinity rule of the machine's group and its VM group, and then its
// tags and attributes. The user data of a control plane machine holds the keys
// of all CAs, so its removal does not wait for steps that may never succeed.
// The VM runs on meanwhile.
func (d *driver) Sync(ctx context.Context, m *infrav1.NovaVSphereMachine, joined bool) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	inv := d.session.inv
	d.recordDesired(id, m)
	if state, vm := d.state(id, m); d.pendingUpgrade(id, m, state) != "" {
		return d.upgrade(ctx, id, m, vm)
	}
	switch step, at := inv.nextStep(id, hypervisor.KeyOf(m), joined); step {
	case syncRule:
		if inv.begin(id, hypervisor.KeyOf(m), syncing, "Changing the anti-affinity rule or the VM group of the machine") {
			d.session.rules.enqueue(at, id)
		}
	case syncTags:
		if inv.begin(id, hypervisor.KeyOf(m), syncing, "Setting tags and custom attributes") {
			d.session.tags.queueWrite(id)
		}
	case syncUserData:
		return d.removeUserData(ctx, id, m, at)
	case syncNone:
	}
	return nil
}

// syncStep is the next step that is due around a VM.
type syncStep int

const (
	syncNone syncStep = iota
	syncRule
	syncTags
	syncUserData
)

// nextStep returns the next step that is due around a machine's VM, and its
// object: the compute cluster, or the VM.
func (i *inventory) nextStep(id uuid.UUID, key hypervisor.Key, joined bool) (syncStep, ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	s := i.evaluate(id, m)
	vm := i.objects.byID[id]
	info := i.objects.vms[vm]
	if info == nil || s.unknown != nil || s.vm.State != hypervisor.Running {
		return syncNone, ref{}
	}
	at, _ := i.objects.clusterInfoOf(info)
	switch {
	case joined && info.hasUserData():
		return syncUserData, vm
	case i.ruleOutOfSync(vm, m, info) || i.groupOutOfSync(vm, m, info):
		return syncRule, at
	case i.tagsOutOfSync(m, info) != "":
		return syncTags, vm
	default:
		return syncNone, ref{}
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
		case m == nil || m.action == nil || m.action.task != (ref{}):
		case err == nil:
			m.action = nil
		default:
			m.action.err = err
		}
	}
	i.notifyChanged(ids)
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
