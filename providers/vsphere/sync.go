package vsphere

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Names of the parts of a VM that are changed to match its machine.
const (
	syncUserData = "UserData"
	syncHardware = "Hardware"
	syncRules    = "Rules"
	syncTags     = "Tags"
)

// Syncers returns the parts of a VM that are changed to match its machine. The
// user data of a control plane machine holds the keys of all CAs, so its
// removal does not wait for parts that may never succeed. The VM runs on
// meanwhile.
func (d *driver) Syncers() []hypervisor.Syncer[*infrav1.NovaVSphereMachine] {
	return []hypervisor.Syncer[*infrav1.NovaVSphereMachine]{
		{Name: syncUserData, AfterJoin: true, Apply: d.removeUserData},
		{Name: syncHardware, Apply: d.upgrade},
		{Name: syncRules, Apply: d.changeRules},
		{Name: syncTags, Apply: d.setTags},
	}
}

// changeRules starts to change the anti-affinity rule of the machine's group
// and its VM group.
func (d *driver) changeRules(_ context.Context, m *infrav1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	if vm, at := d.session.inv.beginSync(id, hypervisor.KeyOf(m), syncRules, "Changing the anti-affinity rule or the VM group of the machine"); vm != (ref{}) {
		d.session.rules.enqueue(at, id)
	}
	return nil
}

// setTags starts to set tags and custom attributes.
func (d *driver) setTags(_ context.Context, m *infrav1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	if vm, _ := d.session.inv.beginSync(id, hypervisor.KeyOf(m), syncTags, "Setting tags and custom attributes"); vm != (ref{}) {
		d.session.tags.queueWrite(id)
	}
	return nil
}

// beginSync records that a part of a VM that runs is about to be changed, and
// returns the VM and its compute cluster. It returns no VM if the part matches
// the machine meanwhile, or if another action is under way.
func (i *inventory) beginSync(id uuid.UUID, key hypervisor.Key, part, message string) (vm, at ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machineOf(id, key)
	s := i.evaluate(id, m)
	if s.unknown != nil || s.vm.State != hypervisor.Running || !slices.Contains(s.vm.ToSync, part) ||
		!i.beginLocked(id, m, action{verb: syncing, part: part, message: message}) {
		return ref{}, ref{}
	}
	vm = i.objects.byID[id]
	at, _ = i.objects.clusterInfoOf(i.objects.vms[vm])
	return vm, at
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
	case <-s.Done():
		return false
	}
}
