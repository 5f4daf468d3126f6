package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// confirmDeleted handles a VM that the account cannot see any more. The VM
// counts as deleted only if vCenter confirms that the object does not exist: a
// VM for which the account has lost its permission disappears from the
// inventory in the same way.
func (d *driver) confirmDeleted(ctx context.Context, id uuid.UUID, vm ref) error {
	err := d.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		var it mo.VirtualMachine
		return object.NewCommon(c, vm).Properties(ctx, vm, []string{"name"}, &it)
	})
	switch {
	case vcenter.IsNotFound(err):
		d.session.inv.recordDeleted(id, vm)
		return nil
	case err == nil, vcenter.IsNoPermission(err):
		return hypervisor.Failure(infrav1.VMNotVisibleReason,
			"vCenter still has the VM (%s), but the account cannot see it any more: restore the account's permissions on the VM", vm.Value)
	default:
		return vcenter.Classify(d.session.Server(), err)
	}
}

// checkVisible verifies that the account would see a VM that was never seen
// over this session and was up before: it must see the folder in which the VM
// was created, or each folder in which it may have been created. The check is
// done once for each login.
func (d *driver) checkVisible(ctx context.Context, id uuid.UUID, m *infrav1.NovaVSphereMachine) error {
	_, login, err := d.session.Client(ctx, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	if d.session.inv.visibleLogin(id) == login {
		return nil
	}
	placements := d.possiblePlacements(ctx, m)
	for i := range placements {
		err := d.checkFolderVisible(ctx, &placements[i])
		switch e := vcenter.AsError(err); {
		case err == nil:
		case e == nil || e.Reason != infrav1.PlacementNotFoundReason:
			return vcenter.Classify(d.session.Server(), err)
		case len(placements) > 1:
			return hypervisor.Failure(infrav1.VMNotVisibleReason, "VM not found, and the account cannot read a folder in which it may have been created: it is not known whether the VM was deleted: %w", e.Err)
		default:
			return hypervisor.Failure(infrav1.VMNotVisibleReason, "VM not found, and the account cannot read the folder in which it was created: it is not known whether the VM was deleted: %w", e.Err)
		}
	}
	d.session.inv.recordVisible(id, login)
	return nil
}

func (i *inventory) visibleLogin(id uuid.UUID) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		return m.visibleLogin
	}
	return 0
}

func (i *inventory) recordVisible(id uuid.UUID, login int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		m.visibleLogin = login
	}
}

// possiblePlacements returns the placements with which the VM of m may have
// been created, at least one. The status names the failure domain, but the
// status is lost when a machine is moved or restored, and a failure domain may
// have been removed from the cluster. Then each failure domain is possible, and
// none.
func (d *driver) possiblePlacements(ctx context.Context, m *infrav1.NovaVSphereMachine) []infrav1.NovaVSpherePlacement {
	none := m.Spec.Placement.Over(d.cluster.Placement)
	zone := m.Status.FailureDomain
	if zone == "" && len(m.Status.Addresses) > 0 {
		return []infrav1.NovaVSpherePlacement{none} // both are written together
	}
	if domain := d.cluster.FailureDomain(zone); domain != nil {
		return []infrav1.NovaVSpherePlacement{domain.Placement.Over(none)}
	}
	var out []infrav1.NovaVSpherePlacement
	for i := range d.cluster.FailureDomains {
		out = append(out, d.cluster.FailureDomains[i].Placement.Over(none))
	}
	if len(out) > 0 && none.Datacenter == "" {
		_, err := d.session.resolver.datacenter(ctx, "")
		if hypervisor.ReasonFor(err, "") == infrav1.PlacementNotFoundReason {
			return out // several datacenters: each VM needs a failure domain
		}
	}
	return append(out, none)
}

// checkFolderVisible verifies that the account sees the folder of a placement.
// A folder that is created on demand may exist without being visible to the
// account, so its properties are read too.
func (d *driver) checkFolderVisible(ctx context.Context, p *infrav1.NovaVSpherePlacement) error {
	for again := true; ; again = false {
		if err := d.checkNewFolder(ctx, p); err != nil {
			return err
		}
		folder, err := d.session.resolver.folder(ctx, p)
		if err != nil {
			return err
		}
		err = d.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
			var it mo.Folder
			return object.NewCommon(c, folder).Properties(ctx, folder, []string{"name"}, &it)
		})
		if !vcenter.IsNotFound(err) && !vcenter.IsNoPermission(err) {
			return err
		}
		d.session.resolver.dropAll()
		if !again {
			return hypervisor.Failure(infrav1.PlacementNotFoundReason, "the account cannot see placement.folder %q (%s)", p.Folder, folder.Value)
		}
	}
}

// isConfirmedDeleted reports whether vCenter has confirmed that a machine's VM
// is deleted.
func (i *inventory) isConfirmedDeleted(id uuid.UUID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	return m != nil && m.deleted
}
