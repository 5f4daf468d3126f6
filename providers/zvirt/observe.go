package zvirt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
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
	d.session.track(id, keyOf(m))
	view, said := d.look(id, m)
	out := hypervisor.VM{Zone: said.Zone, UserData: said.Document != ""}
	if out.State, out.Message, err = stateOf(view); err != nil {
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
		out.Unsettled = d.unsettled(ctx, m, view.VM, said)
	case hypervisor.Busy:
	}
	if out.State == hypervisor.Running {
		out.Addresses = plan.Addresses(m.Name, view.VM, d.endpoint)
		out.Host = d.hostOf(ctx, view.VM)
	}
	resting := out.State == hypervisor.Running && len(out.Addresses) > 0 && out.Unsettled == ""
	d.session.mirror.Rest(id.String(), resting)
	return out, failed
}

// stateOf says what a VM is like.
func stateOf(v ovirt.View) (hypervisor.State, string, error) {
	switch {
	case v.Busy != "":
		return hypervisor.Busy, v.Busy, nil
	case v.VM == nil:
		return hypervisor.Absent, "", nil
	}
	switch status := v.VM.Status; status {
	case "image_locked":
		return hypervisor.Busy, "The engine is copying the template's disks", nil
	case "powering_down", "saving_state", "restoring_state":
		return hypervisor.Busy, "The engine says that the VM is " + status, nil
	case "unknown", "unassigned":
		return "", "", failure(infrav1.HypervisorErrorReason, "the engine does not know the state of the VM (%s): its host may be down", status)
	case "down", "suspended":
		if !v.Detailed {
			return hypervisor.Busy, "Reading the VM's settings", nil
		}
		for _, a := range plan.Attachments(v.VM) {
			if a.Disk != nil && a.Disk.Status == "locked" {
				return hypervisor.Busy, "The engine is working on the VM's disks", nil
			}
		}
		return hypervisor.Stopped, "", nil
	default:
		return hypervisor.Running, "", nil
	}
}

// outcome returns the failure of what was asked for last, once the VM is back
// where it was before.
func (d *driver) outcome(ctx context.Context, id uuid.UUID, m *infrav1.NovaZVirtMachine, now hypervisor.State) error {
	if now == hypervisor.Busy {
		return nil
	}
	d.session.turns.Done(keyOf(m))
	verb := d.session.expected(id)
	failed := verb == creating && now == hypervisor.Absent || verb == starting && now == hypervisor.Stopped
	if verb == "" || verb == starting && now == hypervisor.Running && !d.up(id, m) {
		return nil
	}
	d.session.expect(id, "")
	if !failed || !m.DeletionTimestamp.IsZero() {
		return nil
	}
	text := "the engine gave the VM up"
	var events ovirt.Events
	err := d.session.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{"events"}, Into: &events, Query: url.Values{
		"search": {fmt.Sprintf("vms.name=%q and severity=error sortby time desc", m.Name)}, "max": {"1"},
	}})
	if err == nil && len(events.Events) > 0 {
		text = events.Events[0].Description
	}
	return classify(d.session.server, &ovirt.Error{Status: http.StatusConflict, Detail: text})
}

// up reports whether a VM has come through its start.
func (d *driver) up(id uuid.UUID, m *infrav1.NovaZVirtMachine) bool {
	v, _ := d.look(id, m)
	return v.VM != nil && v.VM.Status == "up"
}

// absent makes sure that a VM is gone that was there before: its mark may have
// been taken away, and then it is nobody's.
func (d *driver) absent(ctx context.Context, id uuid.UUID, m *infrav1.NovaZVirtMachine, failed error) (hypervisor.VM, error) {
	vm := &ovirt.VM{}
	if known := vmID(m); known != "" && d.session.expected(id) != removing {
		err := d.session.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{"vms", known}, Into: vm})
		switch {
		case err == nil:
			return hypervisor.VM{}, failure(infrav1.HypervisorErrorReason,
				"the comment of the VM %s does not hold its mark any more, so nobody can say that it is this machine's: write %q there, or delete the VM", known, plan.Mark{ID: id})
		case !gone(err):
			return hypervisor.VM{}, classify(d.session.server, err)
		}
	}
	if !m.DeletionTimestamp.IsZero() {
		d.session.forget(id, keyOf(m))
	}
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

// hostOf returns the name of the host a VM runs on, if the account can see it.
func (d *driver) hostOf(ctx context.Context, vm *ovirt.VM) string {
	if vm.Host == nil {
		return ""
	}
	host, err := d.session.names.Find(ctx, ovirt.Hosts, vm.Host.ID, ovirt.Any)
	if missing := (*ovirt.MissingError)(nil); errors.As(err, &missing) {
		return vm.Host.ID
	}
	return host.Name
}
