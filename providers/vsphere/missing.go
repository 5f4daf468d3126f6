package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
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
		d.session.inv.RecordDeleted(id, vm)
		return nil
	case err == nil, vcenter.IsNoPermission(err):
		return hypervisor.Failure(vspherev1.VMNotVisibleReason,
			"vCenter still has the VM (%s), but the account cannot see it any more: restore the account's permissions on the VM", vm.Value)
	default:
		return vcenter.Classify(d.session.Server(), err)
	}
}

// checkVisible verifies that the account would see a VM that was never seen
// over this session and was up before: it must see the folder in which the VM
// was created, or each folder in which it may have been created. The check is
// done once for each login.
func (d *driver) checkVisible(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine) error {
	_, login, err := d.session.Client(ctx, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	if d.session.inv.VisibleLogin(id) == login {
		return nil
	}
	if err := d.names.CheckVisible(ctx, m); err != nil {
		return err
	}
	d.session.inv.RecordVisible(id, login)
	return nil
}
