package vsphere

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// Observe returns the state of the VM of m from the inventory.
func (d *driver) Observe(ctx context.Context, m *vspherev1.NovaVSphereMachine) (hypervisor.VM, error) {
	if d.clusterID == "" && m.Spec.ProviderID == "" {
		// The ID is written before any VM is created, so there was never a VM.
		return hypervisor.VM{State: hypervisor.Absent}, nil
	}
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return hypervisor.VM{}, err
	}
	if _, _, err := d.session.Client(ctx, hypervisor.KeyOf(m)); err != nil {
		return hypervisor.VM{}, err
	}
	if err := d.catchUp(ctx, id); err != nil {
		return hypervisor.VM{}, err
	}
	deleting := !m.DeletionTimestamp.IsZero()
	s, err := d.observe(ctx, id, m, deleting)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if s.VM.State == hypervisor.Absent || s.VM.State == hypervisor.Stopped {
		underWay, err := d.cloning(ctx, m)
		if err != nil {
			return hypervisor.VM{}, err
		}
		if underWay {
			return hypervisor.VM{State: hypervisor.Busy, Message: "Waiting for a clone of the template that was started earlier"}, nil
		}
	}
	d.releaseCreationSlot(hypervisor.KeyOf(m), s.VM.State, deleting)
	if s.VM.State == hypervisor.Absent && deleting {
		d.session.inv.Forget(id)
	}
	if s.FailedNow {
		d.dropStale(s.Failure.Err)
	}
	if s.Failure.Err != nil {
		s.VM.LastFailure, s.VM.FailedSyncer = s.Failure.Err, s.Failure.Part
	}
	return s.VM, nil
}

// observe returns the state of the VM of m. It reports a VM as deleted only
// once it is certain that the account would see the VM if it existed.
func (d *driver) observe(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, deleting bool) (inventory.Observation, error) {
	inv := d.session.inv
	desired := spec.NewDesired(d.cluster, d.clusterID, m, inv.Info(id).Zone)
	inv.SetDesired(id, hypervisor.KeyOf(m), &desired, deleting)
	s := inv.Observe(id, hypervisor.KeyOf(m), deleting)
	if s.Missing != (ref{}) {
		if err := d.confirmDeleted(ctx, id, s.Missing); err != nil {
			return inventory.Observation{}, err
		}
		s = inv.Observe(id, hypervisor.KeyOf(m), deleting)
	}
	if s.Unknown != nil {
		return inventory.Observation{}, s.Unknown
	}
	if s.VM.State == hypervisor.Absent && m.Spec.ProviderID != "" && !inv.IsConfirmedDeleted(id) {
		if err := d.checkVisible(ctx, id, m); err != nil {
			return inventory.Observation{}, err
		}
	}
	d.session.tags.Refresh(id)
	if text := d.pendingUpgrade(id, m, s.VM.State); text != "" {
		s.VM.OutOfSync, s.VM.ToSync = inventory.OutOfSyncPrefix+text, append(s.VM.ToSync, inventory.SyncHardware)
	}
	if s.VM.State == hypervisor.Running {
		info := inv.Info(id)
		for _, size := range info.Sizes.Of(m) {
			s.VM.Resizable = append(s.VM.Resizable, size.Resizable)
		}
	}
	s.VM.Addresses = kit.WithoutEndpoint(s.VM.Addresses, d.endpoint)
	return s, d.verifyVCenter(ctx, hypervisor.KeyOf(m))
}

// verifyVCenter returns an error if the session was opened again with another
// vCenter after the driver was connected: the inventory may have its VMs.
func (d *driver) verifyVCenter(ctx context.Context, key hypervisor.Key) error {
	api, _, err := d.session.Client(ctx, key)
	if err == nil && api.ServiceContent.About.InstanceUuid != d.vCenterID {
		err = kit.EndpointReplaced(d.session.Server())
	}
	return err
}

// pendingUpgrade returns the hardware upgrade that a VM still needs which was
// never up, for messages. The hardware of a VM that was up is not changed.
func (d *driver) pendingUpgrade(id uuid.UUID, m *vspherev1.NovaVSphereMachine, state hypervisor.State) string {
	if state != hypervisor.Stopped || m.Spec.ProviderID != "" || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	return spec.PendingUpgrade(m, d.session.inv.Info(id).Version)
}

// dropStale drops resolved names after a failure that a stale reference may
// have caused.
func (d *driver) dropStale(f *hypervisor.Error) {
	switch f.Reason {
	case infrav1.TemplateNotFoundReason, infrav1.PlacementNotFoundReason, infrav1.InvalidSpecReason, infrav1.HypervisorErrorReason:
		d.session.names.DropAll()
	case infrav1.InsufficientResourcesReason:
		d.session.names.DropCapacity()
	}
}

// cloning reports whether a clone is under way that no machine here requested
// and that may be of m: an earlier process may have requested it before it
// crashed. The inventory shows the VM of such a clone when the clone ends.
func (d *driver) cloning(ctx context.Context, m *vspherev1.NovaVSphereMachine) (bool, error) {
	if !d.session.inv.AnyClones() {
		return false, nil
	}
	sources, err := d.names.TemplateRefs(ctx, m)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(sources, d.session.inv.ClonesOf), nil
}

// catchUp reads a task that the stream should have reported and has not.
func (d *driver) catchUp(ctx context.Context, id uuid.UUID) error {
	task, ok := d.session.inv.OverdueTask(id)
	if !ok {
		return nil
	}
	var info *cache.Task
	err := d.session.Call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
		info, err = cache.ReadTask(ctx, c, task)
		return err
	})
	switch {
	case vcenter.IsNotFound(err):
		d.session.inv.RecordTask(task, nil)
		return nil
	case err != nil:
		return vcenter.Classify(d.session.Server(), err)
	}
	if info.Ended() {
		d.session.inv.RecordTask(task, info)
	}
	return nil
}

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
