package zvirt

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Observe reports the VM behind m from what the lists have brought.
func (d *driver) Observe(ctx context.Context, m *infrav1.NovaZVirtMachine) (hypervisor.VM, error) {
	if d.cluster.Annotations[infrav1.ClusterIDAnnotation] == "" && m.Spec.ProviderID == "" {
		// The ID is written before anything else, so there was never a VM.
		return hypervisor.VM{State: hypervisor.Absent}, nil
	}
	id, err := d.identify(m)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if err := d.session.Ready(ctx, keyOf(m)); err != nil {
		return hypervisor.VM{}, err
	}
	d.session.Track(id, keyOf(m))
	view, said := d.look(id, m)
	out := hypervisor.VM{Zone: said.Zone, UserData: said.Document != ""}
	if out.State, out.Message, err = d.state(id, m, view); err != nil {
		return hypervisor.VM{}, err
	}
	if view.VM != nil {
		out.ProviderID = d.cluster.Spec.GetProviderIDPrefix() + "://" + view.VM.ID
	}
	failed := d.outcome(ctx, id, m, out.State)
	switch out.State {
	case hypervisor.Absent:
		return d.absent(ctx, id, m, failed)
	case hypervisor.Stopped, hypervisor.Running:
		out.OutOfSync = d.unsettled(ctx, m, view.VM, said)
	case hypervisor.Busy:
	}
	if out.State == hypervisor.Running {
		d.running(ctx, m, view.VM, &out)
	}
	resting := out.State == hypervisor.Running && len(out.Addresses) > 0 && out.OutOfSync == "" && m.DeletionTimestamp.IsZero()
	d.session.Mirror.Rest(id.String(), resting)
	return out, failed
}

// running adds to out what is known of a VM only while it runs.
func (d *driver) running(ctx context.Context, m *infrav1.NovaZVirtMachine, vm *ovirt.VM, out *hypervisor.VM) {
	out.Addresses = plan.Addresses(m.Name, vm, d.endpoint)
	out.Host = d.session.HostOf(ctx, vm)
	if at, err := plan.SiteOf(&d.cluster.Spec, &m.Spec, out.Zone); err == nil {
		out.NICs = plan.NICs(vm, at.Networks())
	}
	if system := vm.GuestSystem; system != nil {
		out.Report = hypervisor.ParseReport(system.Codename)
	}
}

// outcome returns the failure of what was asked for last, once the VM is back
// where it was before.
func (d *driver) outcome(ctx context.Context, id uuid.UUID, m *infrav1.NovaZVirtMachine, now hypervisor.State) error {
	if now == hypervisor.Busy {
		return nil
	}
	d.session.Turns.Done(keyOf(m))
	verb := d.session.Expected(id)
	if verb == engine.Removing {
		return nil
	}
	failed := verb == engine.Creating && now == hypervisor.Absent || verb == engine.Starting && now == hypervisor.Stopped
	if verb == "" || verb == engine.Starting && now == hypervisor.Running && !d.up(id, m) {
		return nil
	}
	d.session.Expect(id, "")
	if !failed || !m.DeletionTimestamp.IsZero() {
		return nil
	}
	return d.session.Trouble(ctx, m.Spec.VMName(m))
}

// up reports whether a VM has come through its start.
func (d *driver) up(id uuid.UUID, m *infrav1.NovaZVirtMachine) bool {
	v, _ := d.look(id, m)
	return v.VM != nil && v.VM.Status == "up"
}

// absent makes sure that a VM is gone that was there before: its mark may have
// been taken away, and then it is nobody's. That none is there is the end of a
// machine that goes, so one that may have been asked for is waited for.
func (d *driver) absent(ctx context.Context, id uuid.UUID, m *infrav1.NovaZVirtMachine, failed error) (hypervisor.VM, error) {
	vm := &ovirt.VM{}
	if known := vmID(m); known != "" && d.session.Expected(id) != engine.Removing {
		err := d.session.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{"vms", known}, Into: vm})
		switch {
		case err == nil:
			return hypervisor.VM{}, plan.Failure(infrav1.HypervisorErrorReason,
				"the comment of the VM %s does not hold its mark any more, so nobody can say that it is this machine's: write %q there, or delete the VM", known, plan.Mark{ID: id})
		case !engine.Gone(err):
			return hypervisor.VM{}, err
		}
	}
	if m.DeletionTimestamp.IsZero() {
		return hypervisor.VM{State: hypervisor.Absent}, failed
	}
	if vmID(m) == "" && d.session.Mirror.Await(id.String(), m.CreationTimestamp.Time) {
		return hypervisor.VM{State: hypervisor.Busy, Message: "Making sure that no VM is being made"}, nil
	}
	d.session.Forget(id, keyOf(m))
	return hypervisor.VM{State: hypervisor.Absent}, failed
}

// unsettled says what around the VM is not as m asks.
func (d *driver) unsettled(ctx context.Context, m *infrav1.NovaZVirtMachine, vm *ovirt.VM, said plan.Mark) string {
	if !m.DeletionTimestamp.IsZero() {
		return ""
	}
	step, err := d.due(ctx, m, vm, said)
	switch {
	case err != nil:
		return err.Error()
	case step != nil:
		return step.What
	}
	return ""
}
