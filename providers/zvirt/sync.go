package zvirt

import (
	"context"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Syncers returns the parts of a VM that are changed to match its machine. The
// user data of a control plane machine contains the keys of all CAs, so its
// removal does not wait for other parts, which may fail indefinitely.
func (d *driver) Syncers() []hypervisor.Syncer[*zvirtv1.NovaZVirtMachine] {
	return []hypervisor.Syncer[*zvirtv1.NovaZVirtMachine]{
		{Name: plan.UserData, AfterJoin: true, Apply: d.removeUserData},
		{Name: plan.Hardware, Apply: d.sync},
		{Name: hypervisor.Resize, AfterJoin: true, Apply: d.resize},
		{Name: plan.AffinityGroups, Apply: d.sync},
		{Name: plan.Labels, Apply: d.sync},
	}
}

// removeUserData removes the user data from the settings of the VM of m.
func (d *driver) removeUserData(ctx context.Context, m *zvirtv1.NovaZVirtMachine) error {
	view, mark, err := d.editable(m)
	if err != nil || view.VM == nil || mark.UserDataFormat == "" {
		return err
	}
	return d.apply(ctx, view, mark, plan.RemoveUserData(view.VM, mark))
}

// resize increases sizes of a VM that runs: first its disk, then CPUs and memory.
func (d *driver) resize(ctx context.Context, m *zvirtv1.NovaZVirtMachine) error {
	view, mark, err := d.editable(m)
	if err != nil || view.VM == nil || view.VM.Status != "up" {
		return err
	}
	due, err := kit.Increases(m, allSizes(m, view.VM))
	if err != nil || len(due) == 0 {
		return err
	}
	if size, is := kit.WithField(due, resize.BootDisk); is {
		return d.extendDisk(ctx, view, mark, size.Want)
	}
	step, result := increase(m, view.VM, due)
	if err := d.apply(ctx, view, mark, step); err != nil {
		return err
	}
	if left, _ := kit.Increases(m, sizes(m, result)); len(left) > 0 {
		return hypervisor.Failure(infrav1.HypervisorErrorReason, "the engine stored the sizes for the next start of the VM and did not change it while it runs: %w",
			d.session.LastError(ctx, m.Spec.VMName(m)))
	}
	return nil
}

// extendDisk extends the boot disk of a VM that runs. The details of the VM are read
// again until the disk has the size.
func (d *driver) extendDisk(ctx context.Context, view ovirt.Snapshot, mark plan.Mark, gib int64) error {
	if !view.Detailed {
		return nil
	}
	disk := *plan.BootDisk(view.VM)
	if plan.IsLocked(&disk) {
		d.session.Cache.Put(mark.ID.String(), *view.VM, false)
		return nil
	}
	disk.ProvisionedSize = gib << 30
	view.Detailed = false
	return d.apply(ctx, view, mark, plan.ExtendDisk(&disk))
}

// sync takes the next step.
func (d *driver) sync(ctx context.Context, m *zvirtv1.NovaZVirtMachine) error {
	view, mark, err := d.editable(m)
	if err != nil || view.VM == nil {
		return err
	}
	next, err := d.nextStep(ctx, m, view.VM, mark)
	if err == nil && next != nil && next.Group != nil {
		if !d.session.GroupQueue.Acquire(hypervisor.KeyOf(m)) {
			return hypervisor.Waiting(infrav1.RequestQueuedReason, "Queued: other machines are changing affinity groups, and the engine accepts one change at a time")
		}
		defer d.session.GroupQueue.Done(hypervisor.KeyOf(m))
		next, err = d.nextStep(ctx, m, view.VM, mark) // another machine may have created the group
	}
	if err != nil || next == nil {
		return err
	}
	return d.apply(ctx, view, mark, next)
}

// editable returns the state of the VM of m. It has no VM while the VM cannot
// be changed.
func (d *driver) editable(m *zvirtv1.NovaZVirtMachine) (ovirt.Snapshot, plan.Mark, error) {
	id, err := d.identify(m)
	if err != nil {
		return ovirt.Snapshot{}, plan.Mark{}, err
	}
	view, mark := d.lookup(id, m)
	if view.Busy != "" {
		return ovirt.Snapshot{}, mark, nil
	}
	return view, mark, nil
}

// apply executes a step. It ends the report of an earlier failure.
func (d *driver) apply(ctx context.Context, view ovirt.Snapshot, mark plan.Mark, next *plan.Step) error {
	if _, failure := d.session.Pending(mark.ID); failure != nil {
		d.session.SetPending(mark.ID, "")
	}
	vm := *view.VM
	err := d.session.Act(ctx, mark.ID, next.Description, next.Request, func() {
		next.Apply(&vm)
		switch {
		case next.Leave:
			d.session.Cache.RemoveMember(vm.Cluster.ID, next.Group.ID, vm.ID)
		case next.Group != nil:
			d.session.Cache.AddMember(vm.Cluster.ID, *next.Group, vm.ID)
		}
		d.session.Cache.Put(mark.ID.String(), vm, view.Detailed)
	})
	if err != nil && next.Group != nil {
		// Another client may have created, changed or removed the group in the
		// meantime.
		d.session.Cache.InvalidateGroups(vm.Cluster.ID)
	}
	return err
}

// outOfSync describes the next difference between the VM and m, and returns the
// parts that differ.
func (d *driver) outOfSync(ctx context.Context, m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, mark plan.Mark) (text string, parts []string) {
	if mark.UserDataFormat != "" {
		parts = append(parts, plan.UserData)
	}
	if !m.DeletionTimestamp.IsZero() {
		return "", parts
	}
	next, err := d.nextStep(ctx, m, vm, mark)
	switch {
	case err != nil && plan.BeforeBoot(m, vm):
		return err.Error(), append(parts, plan.Hardware)
	case err != nil:
		return err.Error(), append(parts, plan.AffinityGroups)
	case next != nil:
		return next.Description, append(parts, next.Part)
	}
	return "", parts
}

// nextStep returns the next step, or nil.
func (d *driver) nextStep(ctx context.Context, m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, mark plan.Mark) (*plan.Step, error) {
	at, err := plan.PlacementOf(&d.cluster.Spec, &m.Spec, mark.Zone)
	if err != nil {
		return nil, err
	}
	refs, err := d.session.References(ctx, d.bounds, d.cluster.Annotations[infrav1.ClusterIDAnnotation], m, vm, at)
	if err != nil {
		return nil, err
	}
	return plan.NextStep(m, vm, at, refs, mark.ID)
}
