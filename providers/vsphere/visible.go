package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// mourn says whether a VM that left the account's view is gone. Only vCenter's
// own word that there is no such object counts: a VM that the account may not
// see any more leaves the view in the same way.
func (d *driver) mourn(ctx context.Context, id uuid.UUID, vm ref) error {
	err := d.session.call(ctx, func(ctx context.Context, c *vim25.Client) error {
		var it mo.VirtualMachine
		return object.NewCommon(c, vm).Properties(ctx, vm, []string{"name"}, &it)
	})
	switch {
	case isGone(err):
		d.session.inv.bury(id, vm)
		return nil
	case err == nil, isRefused(err):
		return failure(infrav1.VMNotVisibleReason,
			"vCenter still has the VM (%s), but the account does not see it among the VMs any more: give it back its permissions there", vm.Value)
	default:
		return classify(d.session.endpoint.server, err)
	}
}

// sighted makes sure that a VM that was never seen over this session, and was
// up before, would be seen if it were there: the account must see the folder
// it was made in. It is asked once for each login.
func (d *driver) sighted(ctx context.Context, id uuid.UUID, m *infrav1.NovaVSphereMachine) error {
	_, login, err := d.session.ready(ctx, keyOf(m))
	if err != nil {
		return err
	}
	if d.session.inv.sightedAt(id) == login {
		return nil
	}
	folder, err := d.folderOf(ctx, m)
	if err == nil {
		err = d.session.call(ctx, func(ctx context.Context, c *vim25.Client) error {
			var it mo.Folder
			return object.NewCommon(c, folder).Properties(ctx, folder, []string{"name"}, &it)
		})
		if isGone(err) || isRefused(err) {
			d.session.paths.forget()
			_, err = d.folderOf(ctx, m)
		}
	}
	switch e := asError(err); {
	case err == nil:
		d.session.inv.noteSighted(id, login)
		return nil
	case e != nil && e.Reason == infrav1.PlacementNotFoundReason:
		return failure(infrav1.VMNotVisibleReason, "the VM is not among those the account sees, and neither is the folder it was made in, so nobody can say whether it is gone: %w", e.Err)
	default:
		return classify(d.session.endpoint.server, err)
	}
}

func (i *inventory) sightedAt(id uuid.UUID) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		return m.sighted
	}
	return 0
}

func (i *inventory) noteSighted(id uuid.UUID, login int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		m.sighted = login
	}
}

// folderOf resolves the folder in which m's VM was made.
func (d *driver) folderOf(ctx context.Context, m *infrav1.NovaVSphereMachine) (ref, error) {
	g, err := aim(d.cluster, &m.Spec, m.Status.FailureDomain)
	if err != nil {
		return ref{}, err
	}
	return d.session.paths.folder(ctx, &g.placement)
}

// buried reports whether vCenter has said that a machine's VM is no more.
func (i *inventory) buried(id uuid.UUID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	return m != nil && m.buried
}
