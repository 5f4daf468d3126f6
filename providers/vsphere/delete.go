package vsphere

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// Delete takes one step towards the deletion of the VM of m: it powers the VM
// off, then detaches disks that are not the VM's own, then destroys the VM
// with its remaining disks. It reads the attached disks right before it
// destroys the VM, every time, so that a crash at any point does no harm.
func (d *driver) Delete(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	ctx = vcenter.Urgent(ctx)
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	switch {
	case d.session.inv.IsRejected(id, vm):
		return d.deleteRejected(ctx, id, m, vm)
	case state == hypervisor.Running, state == hypervisor.Stopped && d.session.inv.Info(id).Power == types.VirtualMachinePowerStateSuspended:
		return d.powerOff(ctx, id, m, vm)
	case state == hypervisor.Stopped:
		return d.remove(ctx, id, m, vm)
	default:
		return nil
	}
}

// powerOff powers the VM off. A suspended VM loses the content of its memory;
// its disks cannot be detached while it is suspended.
func (d *driver) powerOff(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, vm ref) error {
	if !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Stopping, "Powering off") {
		return nil
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.PowerOffVM_Task(ctx, c, &types.PowerOffVM_Task{This: vm})
		if vcenter.IsNotFound(err) {
			return ref{}, nil
		}
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}

// remove takes the next step of the deletion of a VM that is off.
func (d *driver) remove(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, vm ref) error {
	if d.session.rules.Leave(id, hypervisor.KeyOf(m)) {
		return nil
	}
	if !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Destroying, "Destroying") {
		return nil
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		task, err := d.removal(ctx, c, id, vm)
		if vcenter.IsNotFound(err) {
			return ref{}, nil
		}
		return task, err
	})
}

// removal requests the next step that is needed before the VM can be
// destroyed, or its destruction.
func (d *driver) removal(ctx context.Context, c *vim25.Client, id uuid.UUID, vm ref) (ref, error) {
	layout, err := readLayout(ctx, c, vm)
	if err != nil {
		return ref{}, err
	}
	step, err := layout.NextStep()
	if err != nil {
		return ref{}, err
	}
	if step != spec.StepDestroy {
		d.session.inv.Rename(id, inventory.Detaching, layout.Message(step))
	}
	switch step {
	case spec.StepDropSnapshots:
		res, err := methods.RemoveAllSnapshots_Task(ctx, c, &types.RemoveAllSnapshots_Task{This: vm, Consolidate: types.NewBool(true)})
		return taskOf(res, err, func() ref { return res.Returnval })
	case spec.StepConsolidate:
		res, err := methods.ConsolidateVMDisks_Task(ctx, c, &types.ConsolidateVMDisks_Task{This: vm})
		return taskOf(res, err, func() ref { return res.Returnval })
	case spec.StepDetach:
		res, err := methods.ReconfigVM_Task(ctx, c, &types.ReconfigVM_Task{This: vm, Spec: layout.DetachSpec()})
		return taskOf(res, err, func() ref { return res.Returnval })
	default:
		res, err := methods.Destroy_Task(ctx, c, &types.Destroy_Task{This: vm})
		return taskOf(res, err, func() ref { return res.Returnval })
	}
}

// taskOf returns the task of a response.
func taskOf[T any](_ *T, err error, task func() ref) (ref, error) {
	if err != nil {
		return ref{}, err
	}
	return task(), nil
}

func readLayout(ctx context.Context, c *vim25.Client, vm ref) (*spec.Layout, error) {
	var content []types.ObjectContent
	if err := property.DefaultCollector(c).Retrieve(ctx, []ref{vm}, spec.LayoutProperties, &content); err != nil {
		return nil, fmt.Errorf("reading the VM's disks: %w", err)
	}
	l, snapshots, seen := spec.NewLayout(content)
	if !seen || l.Directory == "" {
		return nil, hypervisor.Failure(vspherev1.VMUnreachableReason, "the disks of the VM cannot be read, so the VM is not destroyed")
	}
	return l, readSnapshots(ctx, c, l, snapshots)
}

func readSnapshots(ctx context.Context, c *vim25.Client, l *spec.Layout, refs []ref) error {
	if len(refs) == 0 {
		return nil
	}
	var snapshots []mo.VirtualMachineSnapshot
	if err := property.DefaultCollector(c).Retrieve(ctx, refs, []string{"config"}, &snapshots); err != nil {
		return fmt.Errorf("reading the VM's snapshots: %w", err)
	}
	for _, s := range snapshots {
		l.Snapshots = append(l.Snapshots, s.Config.Hardware.Device)
	}
	return nil
}

// vCenter keeps instance UUIDs unique: if another VM has the UUID that a clone
// requests, the new VM gets a random one. Such a VM runs with the user data of
// the machine and has its name. The result of the clone task proves that the
// VM was created for the machine, so the driver deletes it. The proof is kept
// in memory only. After a restart of the manager the VM is like any other VM
// with that name.

// deleteRejected takes one step towards the deletion of a VM that was created
// with another instance UUID. It reads the power state each time: the stream
// does not report it.
func (d *driver) deleteRejected(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, vm ref) error {
	if !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Destroying, inventory.RejectedMessage(vm)) {
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

func (d *driver) rejectedDeletion(ctx context.Context, c *vim25.Client, id uuid.UUID, vm ref) (ref, error) {
	var it mo.VirtualMachine
	if err := object.NewCommon(c, vm).Properties(ctx, vm, []string{"runtime.powerState"}, &it); err != nil {
		return ref{}, err
	}
	if it.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff {
		return d.removal(ctx, c, id, vm)
	}
	d.session.inv.Rename(id, inventory.Stopping, "Powering off the VM "+vm.Value+", to which vCenter gave another instance UUID")
	res, err := methods.PowerOffVM_Task(ctx, c, &types.PowerOffVM_Task{This: vm})
	return taskOf(res, err, func() ref { return res.Returnval })
}
