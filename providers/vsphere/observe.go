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
	if s.vm.State == hypervisor.Absent || s.vm.State == hypervisor.Stopped {
		underWay, err := d.cloning(ctx, m)
		if err != nil {
			return hypervisor.VM{}, err
		}
		if underWay {
			return hypervisor.VM{State: hypervisor.Busy, Message: "Waiting for a clone of the template that was started earlier"}, nil
		}
	}
	d.releaseCreationSlot(hypervisor.KeyOf(m), s.vm.State, deleting)
	if s.vm.State == hypervisor.Absent && deleting {
		d.session.inv.forget(id)
	}
	if s.failedNow {
		d.dropStale(s.failure.err)
	}
	if s.failure.err != nil {
		s.vm.LastFailure, s.vm.FailedSyncer = s.failure.err, s.failure.part
	}
	return s.vm, nil
}

// observe returns the state of the VM of m. It reports a VM as deleted only
// once it is certain that the account would see the VM if it existed.
func (d *driver) observe(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, deleting bool) (observation, error) {
	inv := d.session.inv
	desired := spec.NewDesired(d.cluster, d.clusterID, m, inv.info(id).Zone)
	inv.setDesired(id, hypervisor.KeyOf(m), &desired, deleting)
	s := inv.observe(id, hypervisor.KeyOf(m), deleting)
	if s.missing != (ref{}) {
		if err := d.confirmDeleted(ctx, id, s.missing); err != nil {
			return observation{}, err
		}
		s = inv.observe(id, hypervisor.KeyOf(m), deleting)
	}
	if s.unknown != nil {
		return observation{}, s.unknown
	}
	if s.vm.State == hypervisor.Absent && m.Spec.ProviderID != "" && !inv.isConfirmedDeleted(id) {
		if err := d.checkVisible(ctx, id, m); err != nil {
			return observation{}, err
		}
	}
	d.session.tags.refresh(id)
	if text := d.pendingUpgrade(id, m, s.vm.State); text != "" {
		s.vm.OutOfSync, s.vm.ToSync = outOfSyncPrefix+text, append(s.vm.ToSync, syncHardware)
	}
	s.vm.Addresses = kit.WithoutEndpoint(s.vm.Addresses, d.endpoint)
	return s, nil
}

// pendingUpgrade returns the hardware upgrade that a VM still needs which was
// never up, for messages. The hardware of a VM that was up is not changed.
func (d *driver) pendingUpgrade(id uuid.UUID, m *vspherev1.NovaVSphereMachine, state hypervisor.State) string {
	if state != hypervisor.Stopped || m.Spec.ProviderID != "" || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	return spec.PendingUpgrade(m, d.session.inv.info(id).Version)
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
	if !d.session.inv.anyClones() {
		return false, nil
	}
	sources, err := d.names.TemplateRefs(ctx, m)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(sources, d.session.inv.clonesOf), nil
}

// catchUp reads a task that the stream should have reported and has not.
func (d *driver) catchUp(ctx context.Context, id uuid.UUID) error {
	task, ok := d.session.inv.overdueTask(id)
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
		d.session.inv.recordTask(task, nil)
		return nil
	case err != nil:
		return vcenter.Classify(d.session.Server(), err)
	}
	if info.Ended() {
		d.session.inv.recordTask(task, info)
	}
	return nil
}
