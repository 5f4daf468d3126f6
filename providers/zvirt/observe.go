package zvirt

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Observe reports the VM of m from the cache. It returns an error if the session
// was opened again with another engine after the driver was connected: the cache
// may have its VMs.
func (d *driver) Observe(ctx context.Context, m *zvirtv1.NovaZVirtMachine) (hypervisor.VM, error) {
	vm, err := d.observe(ctx, m)
	if id, _ := d.session.EngineInfo(); err == nil && id != d.engineID {
		err = kit.EndpointReplaced(d.session.Server())
	}
	if err != nil {
		return hypervisor.VM{}, err
	}
	return vm, nil
}

func (d *driver) observe(ctx context.Context, m *zvirtv1.NovaZVirtMachine) (hypervisor.VM, error) {
	if d.cluster.Annotations[infrav1.ClusterIDAnnotation] == "" && m.Spec.ProviderID == "" {
		// The cluster ID is set before the first request, so there is no VM.
		return hypervisor.VM{State: hypervisor.Absent}, nil
	}
	id, err := d.identify(m)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if err := d.session.Ready(ctx, hypervisor.KeyOf(m)); err != nil {
		return hypervisor.VM{}, err
	}
	d.session.Cache.Track(id.String(), hypervisor.KeyOf(m))
	view, mark := d.lookup(id, m)
	out := hypervisor.VM{Zone: mark.Zone, UserData: mark.UserDataFormat != ""}
	if out.State, out.Message, err = d.state(id, m, view); err != nil {
		return hypervisor.VM{}, err
	}
	if view.VM != nil {
		out.ID = view.VM.ID
		out.ProviderID = d.cluster.Spec.GetProviderIDPrefix() + "://" + view.VM.ID
	}
	out.LastFailure = d.lastFailure(ctx, id, m, out.State)
	switch out.State {
	case hypervisor.Absent:
		return d.confirmAbsent(ctx, id, m, out.LastFailure)
	case hypervisor.Stopped, hypervisor.Running:
		out.OutOfSync, out.ToSync = d.outOfSync(ctx, m, view.VM, mark)
	case hypervisor.Busy:
	}
	if out.State == hypervisor.Running {
		d.running(ctx, m, view.VM, &out)
		kit.ReportSizes(m, allSizes(m, view.VM), &out)
	}
	idle := out.State == hypervisor.Running && len(out.Addresses) > 0 && out.OutOfSync == "" && m.DeletionTimestamp.IsZero()
	d.session.Cache.SetIdle(id.String(), idle)
	return out, nil
}

// running adds the properties of a running VM to out.
func (d *driver) running(ctx context.Context, m *zvirtv1.NovaZVirtMachine, vm *ovirt.VM, out *hypervisor.VM) {
	out.Addresses = plan.Addresses(m.Name, vm, d.endpoint)
	out.Host = d.session.HostOf(ctx, vm)
	if at, err := plan.PlacementOf(&d.cluster.Spec, &m.Spec, out.Zone); err == nil {
		out.NICs = plan.NICs(vm, at.Networks())
	}
	if system := vm.GuestSystem; system != nil {
		out.Report = hypervisor.ParseReport(system.Codename)
	}
}

// lastFailure returns the failure of the last action while the VM is in the
// state that it had before the action. It reads the failure once.
func (d *driver) lastFailure(ctx context.Context, id uuid.UUID, m *zvirtv1.NovaZVirtMachine, now hypervisor.State) error {
	if now == hypervisor.Busy {
		return nil
	}
	d.session.CreationQueue.Done(hypervisor.KeyOf(m))
	verb, failure := d.session.Pending(id)
	if verb == "" || verb == engine.Removing || verb == engine.Starting && now == hypervisor.Running && !d.isUp(id, m) {
		return nil
	}
	failed := verb == engine.Creating && now == hypervisor.Absent || verb == engine.Starting && now == hypervisor.Stopped
	if !failed || !m.DeletionTimestamp.IsZero() {
		d.session.SetPending(id, "")
		return nil
	}
	if failure == nil {
		failure = d.session.LastError(ctx, m.Spec.VMName(m))
		d.session.SetFailure(id, failure)
	}
	return failure
}

// isUp reports whether a VM has started.
func (d *driver) isUp(id uuid.UUID, m *zvirtv1.NovaZVirtMachine) bool {
	v, _ := d.lookup(id, m)
	return v.VM != nil && v.VM.Status == "up"
}

// confirmAbsent confirms that a VM that existed before was deleted: a user may
// have removed its mark instead, so that no machine owns it. A machine in
// deletion is removed as soon as its VM is Absent, so confirmAbsent waits for a
// VM whose creation may have been requested.
func (d *driver) confirmAbsent(ctx context.Context, id uuid.UUID, m *zvirtv1.NovaZVirtMachine, failed error) (hypervisor.VM, error) {
	vm := &ovirt.VM{}
	if verb, _ := d.session.Pending(id); vmID(m) != "" && verb != engine.Removing {
		known := vmID(m)
		err := d.session.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{"vms", known}, Into: vm})
		switch {
		case err == nil:
			return hypervisor.VM{}, hypervisor.Failure(infrav1.HypervisorErrorReason,
				"the comment of the VM %s no longer contains its mark, so the controller cannot confirm that it belongs to this machine: set the comment to %q, or delete the VM", known, plan.Mark{ID: id})
		case !engine.IsNotFound(err):
			return hypervisor.VM{}, err
		}
	}
	if m.DeletionTimestamp.IsZero() {
		return hypervisor.VM{State: hypervisor.Absent, LastFailure: failed}, nil
	}
	if vmID(m) == "" && d.session.Cache.MayAppear(id.String(), m.CreationTimestamp.Time) {
		return hypervisor.VM{State: hypervisor.Busy, Message: "Checking that no VM is being created"}, nil
	}
	d.session.Forget(id, hypervisor.KeyOf(m))
	return hypervisor.VM{State: hypervisor.Absent}, nil
}
