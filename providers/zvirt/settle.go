package zvirt

import (
	"context"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Sync takes the next step. Once the node has joined, the first one removes
// the user data from the VM's settings: that of a control plane machine holds
// the keys of all CAs, so it waits for no step that may never succeed.
func (d *driver) Sync(ctx context.Context, m *infrav1.NovaZVirtMachine, joined bool) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	view, said := d.look(id, m)
	if view.VM == nil || view.Busy != "" {
		return nil
	}
	if joined && said.Document != "" {
		return d.take(ctx, view, said, plan.Scrub(view.VM, said))
	}
	next, err := d.due(ctx, m, view.VM, said)
	if err == nil && next != nil && next.Group != nil {
		if !d.session.Grouping.Acquire(keyOf(m)) {
			queued := plan.Failure(infrav1.RequestQueuedReason, "Waiting until other machines have changed their affinity groups: the engine changes one at a time")
			queued.Waiting = true
			return queued
		}
		defer d.session.Grouping.Done(keyOf(m))
		next, err = d.due(ctx, m, view.VM, said) // another machine may have made the group
	}
	if err != nil || next == nil {
		return err
	}
	return d.take(ctx, view, said, next)
}

// take takes a step.
func (d *driver) take(ctx context.Context, view ovirt.View, said plan.Mark, next *plan.Step) error {
	vm := *view.VM
	err := d.session.Ask(ctx, said.ID, next.What, next.Request, func() {
		next.Then(&vm)
		switch {
		case next.Leave:
			d.session.Mirror.Leave(vm.Cluster.ID, next.Group.ID, vm.ID)
		case next.Group != nil:
			d.session.Mirror.Join(vm.Cluster.ID, *next.Group, vm.ID)
		}
		d.session.Mirror.Put(said.ID.String(), vm, view.Detailed)
	})
	if err != nil && next.Group != nil {
		// Somebody else may have made, filled or removed the group meanwhile.
		d.session.Mirror.Regroup(vm.Cluster.ID)
	}
	return err
}

// due returns the next step, or nil.
func (d *driver) due(ctx context.Context, m *infrav1.NovaZVirtMachine, vm *ovirt.VM, said plan.Mark) (*plan.Step, error) {
	at, err := plan.SiteOf(&d.cluster.Spec, &m.Spec, said.Zone)
	if err != nil {
		return nil, err
	}
	around, err := d.session.Around(ctx, d.bounds, d.cluster.Annotations[infrav1.ClusterIDAnnotation], m, vm, at)
	if err != nil {
		return nil, err
	}
	return plan.Next(m, vm, at, around, said.ID)
}
