package vsphere

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// vCenter keeps instance UUIDs unique: if another VM has the UUID that a clone
// requests, the new VM gets a random one. Such a VM runs with the user data of
// the machine and has its name. The result of the clone task proves that the
// VM was created for the machine, so the driver deletes it. The proof is kept
// in memory only. After a restart of the manager the VM is like any other VM
// with that name.

// rejected returns the VM that a clone task created with another instance
// UUID.
func (a *action) rejected(o *cache.Objects, id uuid.UUID) ref {
	if a == nil || a.verb != creating || a.task == (ref{}) {
		return ref{}
	}
	task := o.Tasks[a.task]
	if task == nil || !task.Done() || task.Failed() {
		return ref{}
	}
	if other := o.IDs[task.Result]; other == uuid.Nil || other == id {
		return ref{}
	}
	return task.Result
}

// evaluateRejected sets the observation of a machine whose VM has another
// instance UUID. The creation fails once that VM is deleted, so that the time
// until the next attempt starts then.
func (i *inventory) evaluateRejected(vm ref, m *machine, s *observation) {
	_, listed := i.objects.IDs[vm]
	switch {
	case listed && !m.action.destroyed(i.objects):
		s.rejected, s.vm.State = vm, hypervisor.Absent
		s.vm.Message = rejectedMessage(vm)
		if m.deleting {
			s.vm.State = hypervisor.Stopped // it has to be deleted before the machine
		}
		if err := s.failure.err; err != nil && m.action != nil {
			s.failure.err = hypervisor.Failure(err.Reason, "deleting the VM %s, to which vCenter gave another instance UUID: %w", vm.Value, err.Err)
		}
	case m.deleting:
		s.vm.State = hypervisor.Absent
	default:
		s.vm.State = hypervisor.Absent
		s.failure.err = hypervisor.Failure(infrav1.HypervisorErrorReason, "vCenter gave the new VM (%s) another instance UUID than the requested one, because a VM that the account cannot see has that:"+
			" the new VM was deleted; let the account see the other VM or delete that, or replace the Machine", vm.Value)
		m.uuidTaken, m.uuidTakenAt = s.failure.err, time.Now()
	}
}

// uuidTaken returns the reason why the last clone of a machine was deleted, if
// that was a short time ago. The next clone would most likely end in the same
// way.
func (d *driver) uuidTaken(id uuid.UUID) error {
	inv := d.session.inv
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.machines[id]
	if m == nil || m.uuidTaken == nil || time.Since(m.uuidTakenAt) > d.session.Timeouts.RecloneDelay {
		return nil
	}
	return m.uuidTaken
}

// isRejected reports whether vm was created for the machine with another
// instance UUID.
func (i *inventory) isRejected(id uuid.UUID, vm ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	return m != nil && vm != (ref{}) && (m.rejected == vm || m.action.rejected(i.objects, id) == vm)
}

// deleteRejected takes one step towards the deletion of a VM that was created
// with another instance UUID. It reads the power state each time: the stream
// does not report it.
func (d *driver) deleteRejected(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, vm ref) error {
	if !d.session.inv.begin(id, hypervisor.KeyOf(m), destroying, rejectedMessage(vm)) {
		return nil
	}
	return d.startTask(vcenter.Urgent(ctx), id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		task, err := d.rejectedDeletion(ctx, c, id, vm)
		if vcenter.IsNotFound(err) {
			return ref{}, nil
		}
		return task, err
	})
}

func rejectedMessage(vm ref) string {
	return "Deleting the VM " + vm.Value + ", to which vCenter gave another instance UUID"
}

func (d *driver) rejectedDeletion(ctx context.Context, c *vim25.Client, id uuid.UUID, vm ref) (ref, error) {
	var it mo.VirtualMachine
	if err := object.NewCommon(c, vm).Properties(ctx, vm, []string{"runtime.powerState"}, &it); err != nil {
		return ref{}, err
	}
	if it.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff {
		return d.removal(ctx, c, id, vm)
	}
	d.session.inv.rename(id, stopping, "Powering off the VM "+vm.Value+", to which vCenter gave another instance UUID")
	res, err := methods.PowerOffVM_Task(ctx, c, &types.PowerOffVM_Task{This: vm})
	return taskOf(res, err, func() ref { return res.Returnval })
}
