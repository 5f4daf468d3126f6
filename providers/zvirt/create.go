package zvirt

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Create asks the engine for the VM: one request that carries all that the
// engine takes at once, and the mark.
func (d *driver) Create(ctx context.Context, m *infrav1.NovaZVirtMachine, l hypervisor.CreateOptions) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	if view, _ := d.look(id, m); view.VM != nil || view.Busy != "" || len(view.Unclear) > 0 {
		return nil
	}
	at, err := plan.SiteOf(&d.cluster.Spec, &m.Spec, l.Zone)
	if err != nil {
		return err
	}
	from, err := d.session.Source(ctx, d.bounds, m, at)
	if err != nil {
		return err
	}
	vm, err := plan.VM(m, l, at, from, id)
	if err != nil {
		return err
	}
	if err := plan.Vacant(vm, d.session.Mirror.All()); err != nil {
		return err
	}
	if !d.session.Turns.Acquire(keyOf(m)) {
		queued := plan.Failure(infrav1.RequestQueuedReason, "Waiting for its turn: the engine is creating as many VMs as it may at once")
		queued.Waiting = true
		return queued
	}
	made := ovirt.VM{}
	err = d.session.Ask(ctx, id, "Creating the VM from its template", ovirt.Request{
		Method: http.MethodPost, Path: []string{"vms"}, Body: vm, Into: &made,
		Query: url.Values{"clone": {strconv.FormatBool(plan.IsFull(&m.Spec, at, from))}},
	}, func() {
		if made.ID != "" {
			d.session.Mirror.Put(id.String(), made, false)
		}
	})
	if err == nil {
		d.session.Expect(id, engine.Creating)
		return nil
	}
	if reason := hypervisor.ReasonFor(err, ""); reason != infrav1.EndpointUnreachableReason && reason != infrav1.NameConflictReason {
		d.session.Turns.Done(keyOf(m))
	}
	if hypervisor.ReasonFor(err, "") == infrav1.NameConflictReason {
		return d.taken(ctx, id, m, from.DataCenter)
	}
	return err
}

// taken finds out whose VM has the name: an earlier request of ours may have
// been slow. Names are unique in a data center only.
func (d *driver) taken(ctx context.Context, id uuid.UUID, m *infrav1.NovaZVirtMachine, dataCenter string) error {
	d.session.Turns.Done(keyOf(m))
	name := m.Spec.VMName(m)
	var found ovirt.VMs
	err := d.session.Do(ctx, ovirt.Request{
		Method: http.MethodGet, Path: []string{"vms"}, Query: url.Values{"search": {fmt.Sprintf("name=%q", name)}}, Into: &found,
	})
	if err != nil {
		return err
	}
	for _, vm := range found.VMs {
		if plan.Subject(vm.Comment) == id.String() {
			d.session.Mirror.Rest(id.String(), false)
			return nil
		}
	}
	for _, vm := range found.VMs {
		in, err := d.session.DataCenterOf(ctx, &vm)
		if err != nil {
			return err
		}
		if vm.Name == name && in == dataCenter {
			return plan.Failure(infrav1.NameConflictReason,
				"a VM with this machine's name (%s) exists in the data center and is not ours: it is left alone; rename or delete it in the engine", vm.ID)
		}
	}
	return plan.Failure(infrav1.NameConflictReason,
		"a VM with this machine's name exists in the data center and is not ours; the user cannot see it. It is left alone; rename or delete it in the engine")
}
