package resolve

import (
	"context"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// CheckVisible verifies that the account would see the VM of m if it existed:
// it must see the folder in which the VM was created, or each folder in which
// it may have been created.
func (r *Resolver) CheckVisible(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	placements := r.possiblePlacements(ctx, m)
	for i := range placements {
		err := r.checkFolderVisible(ctx, &placements[i])
		switch e := vcenter.AsError(err); {
		case err == nil:
		case e == nil || e.Reason != infrav1.PlacementNotFoundReason:
			return vcenter.Classify(r.cache.session.Server(), err)
		case len(placements) > 1:
			return hypervisor.Failure(vspherev1.VMNotVisibleReason, "VM not found, and the account cannot read a folder in which it may have been created: it is not known whether the VM was deleted: %w", e.Err)
		default:
			return hypervisor.Failure(vspherev1.VMNotVisibleReason, "VM not found, and the account cannot read the folder in which it was created: it is not known whether the VM was deleted: %w", e.Err)
		}
	}
	return nil
}

// possiblePlacements returns the placements with which the VM of m may have
// been created, at least one. The status names the failure domain, but the
// status is lost when a machine is moved or restored, and a failure domain may
// have been removed from the cluster. Then each failure domain is possible, and
// none.
func (r *Resolver) possiblePlacements(ctx context.Context, m *vspherev1.NovaVSphereMachine) []vspherev1.NovaVSpherePlacement {
	none := m.Spec.Placement.Over(r.cluster.Placement)
	zone := m.Status.FailureDomain
	if zone == "" && len(m.Status.Addresses) > 0 {
		return []vspherev1.NovaVSpherePlacement{none} // both are written together
	}
	if domain := r.cluster.FailureDomain(zone); domain != nil {
		return []vspherev1.NovaVSpherePlacement{domain.Placement.Over(none)}
	}
	var out []vspherev1.NovaVSpherePlacement
	for i := range r.cluster.FailureDomains {
		out = append(out, r.cluster.FailureDomains[i].Placement.Over(none))
	}
	if len(out) > 0 && none.Datacenter == "" {
		_, err := r.cache.datacenter(ctx, "")
		if hypervisor.ReasonFor(err, "") == infrav1.PlacementNotFoundReason {
			return out // several datacenters: each VM needs a failure domain
		}
	}
	return append(out, none)
}

// checkFolderVisible verifies that the account sees the folder of a placement.
// A folder that is created on demand may exist without being visible to the
// account, so its properties are read too.
func (r *Resolver) checkFolderVisible(ctx context.Context, p *vspherev1.NovaVSpherePlacement) error {
	for again := true; ; again = false {
		if err := r.checkNewFolder(ctx, p); err != nil {
			return err
		}
		folder, err := r.cache.folder(ctx, p)
		if err != nil {
			return err
		}
		err = r.cache.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
			var it mo.Folder
			return object.NewCommon(c, folder).Properties(ctx, folder, []string{"name"}, &it)
		})
		if !vcenter.IsNotFound(err) && !vcenter.IsNoPermission(err) {
			return err
		}
		r.cache.DropAll()
		if !again {
			return hypervisor.Failure(infrav1.PlacementNotFoundReason, "the account cannot see placement.folder %q (%s)", p.Folder, folder.Value)
		}
	}
}
