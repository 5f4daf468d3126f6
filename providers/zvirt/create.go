package zvirt

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Create sends one request that creates the VM. The request contains all
// settings that the engine accepts at creation, and the owner mark.
func (d *driver) Create(ctx context.Context, m *zvirtv1.NovaZVirtMachine, l hypervisor.CreateOptions) error {
	id, err := d.identify(m)
	if err != nil {
		return err
	}
	if view, _ := d.lookup(id, m); view.VM != nil || view.Busy != "" || len(view.Ambiguous) > 0 {
		return nil
	}
	at, err := plan.PlacementOf(&d.cluster.Spec, &m.Spec, l.Zone)
	if err != nil {
		return err
	}
	inputs, err := d.session.CloneInputs(ctx, d.bounds, m, at)
	if err != nil {
		return err
	}
	vm, err := plan.VM(m, l, at, inputs, id)
	if err != nil {
		return err
	}
	if err := plan.CheckAddresses(vm, d.session.Cache.All()); err != nil {
		return err
	}
	if !d.session.CreationQueue.Acquire(hypervisor.KeyOf(m)) {
		return hypervisor.Waiting(infrav1.RequestQueuedReason, "Queued: the engine is creating the maximum number of VMs; this VM is number %d in the queue of its namespace",
			d.session.CreationQueue.Position(hypervisor.KeyOf(m)))
	}
	created := ovirt.VM{}
	err = d.session.Act(ctx, id, "Creating the VM from its template", ovirt.Request{
		Method: http.MethodPost, Path: []string{"vms"}, Body: vm, Into: &created,
		Query: url.Values{"clone": {strconv.FormatBool(plan.IsFullClone(&m.Spec, at, inputs))}},
	}, func() {
		if created.ID != "" {
			d.session.Cache.Put(id.String(), created, false)
		}
	})
	if err == nil {
		d.session.SetPending(id, engine.Creating)
		return nil
	}
	if reason := hypervisor.ReasonFor(err, ""); reason != infrav1.EndpointUnreachableReason && reason != infrav1.NameConflictReason {
		d.session.CreationQueue.Done(hypervisor.KeyOf(m))
	}
	if hypervisor.ReasonFor(err, "") == infrav1.NameConflictReason {
		return d.nameConflict(ctx, id, m, inputs.DataCenter)
	}
	return err
}

// nameConflict finds the owner of the VM that has the name: it may be the
// result of an earlier, slow request of this driver. Names are unique in a data
// center only.
func (d *driver) nameConflict(ctx context.Context, id uuid.UUID, m *zvirtv1.NovaZVirtMachine, dataCenter string) error {
	d.session.CreationQueue.Done(hypervisor.KeyOf(m))
	name := m.Spec.VMName(m)
	var found ovirt.VMs
	err := d.session.Do(ctx, ovirt.Request{
		Method: http.MethodGet, Path: []string{"vms"}, Query: url.Values{"search": {fmt.Sprintf("name=%q", name)}}, Into: &found,
	})
	if err != nil {
		return err
	}
	for _, vm := range found.VMs {
		if plan.OwnerOf(vm.Comment) == id.String() {
			d.session.Cache.SetIdle(id.String(), false)
			return nil
		}
	}
	for _, vm := range found.VMs {
		in, err := d.session.DataCenterOf(ctx, &vm)
		if err != nil {
			return err
		}
		if vm.Name == name && in == dataCenter {
			return hypervisor.Failure(infrav1.NameConflictReason,
				"a VM with this machine's name (%s) exists in the data center and does not belong to this machine: it is not changed; rename or delete it in the engine", vm.ID)
		}
	}
	return hypervisor.Failure(infrav1.NameConflictReason,
		"a VM with this machine's name exists in the data center and does not belong to this machine; the user cannot see it. It is not changed; rename or delete it in the engine")
}
