package vsphere

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"

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
	d.session.tags.refresh(id)
	if text := d.pendingUpgrade(id, m, s.VM.State); text != "" {
		s.VM.OutOfSync, s.VM.ToSync = inventory.OutOfSyncPrefix+text, append(s.VM.ToSync, inventory.SyncHardware)
	}
	s.VM.Addresses = kit.WithoutEndpoint(s.VM.Addresses, d.endpoint)
	return s, nil
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
