package zvirt

import (
	"context"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Sync takes the next step. Once the node has joined, the first step removes
// the user data from the settings of the VM. The user data of a control plane
// machine contains the keys of all CAs, so its removal does not wait for other
// steps, which may fail indefinitely.
func (d *driver) Sync(ctx context.Context, m *infrav1.NovaZVirtMachine, joined bool) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	view, mark := d.lookup(id, m)
	if view.VM == nil || view.Busy != "" {
		return nil
	}
	if joined && mark.UserDataFormat != "" {
		return d.apply(ctx, view, mark, plan.RemoveUserData(view.VM, mark))
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

// apply executes a step.
func (d *driver) apply(ctx context.Context, view ovirt.Snapshot, mark plan.Mark, next *plan.Step) error {
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

// nextStep returns the next step, or nil.
func (d *driver) nextStep(ctx context.Context, m *infrav1.NovaZVirtMachine, vm *ovirt.VM, mark plan.Mark) (*plan.Step, error) {
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
