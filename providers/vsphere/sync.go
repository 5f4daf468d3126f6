package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// Syncers returns the parts of a VM that are changed to match its machine. The
// user data of a control plane machine holds the keys of all CAs, so its
// removal does not wait for parts that may never succeed. The VM runs on
// meanwhile.
func (d *driver) Syncers() []hypervisor.Syncer[*vspherev1.NovaVSphereMachine] {
	return []hypervisor.Syncer[*vspherev1.NovaVSphereMachine]{
		{Name: inventory.SyncUserData, AfterJoin: true, Apply: d.removeUserData},
		{Name: inventory.SyncHardware, Apply: d.upgrade},
		{Name: inventory.SyncSizes, AfterJoin: true, Apply: d.resize},
		{Name: inventory.SyncRules, Apply: d.changeRules},
		{Name: inventory.SyncTags, Apply: d.setTags},
	}
}

// changeRules starts to change the anti-affinity rule of the machine's group
// and its VM group.
func (d *driver) changeRules(_ context.Context, m *vspherev1.NovaVSphereMachine) error {
	return d.startSync(m, d.session.rules.Sync)
}

// setTags starts to set tags and custom attributes.
func (d *driver) setTags(_ context.Context, m *vspherev1.NovaVSphereMachine) error {
	return d.startSync(m, d.session.tags.Sync)
}

// startSync queues a machine for a worker.
func (d *driver) startSync(m *vspherev1.NovaVSphereMachine, queue func(uuid.UUID, hypervisor.Key)) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err == nil {
		queue(id, hypervisor.KeyOf(m))
	}
	return err
}

// upgrade requests vCenter to upgrade the hardware of a VM that is off to the
// version in the spec of m. The clone request cannot do that: vCenter accepts
// a version only for VMs that it creates from scratch.
func (d *driver) upgrade(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	state, vm := d.state(id, m)
	if d.pendingUpgrade(id, m, state) == "" || !d.session.inv.Begin(id, hypervisor.KeyOf(m), inventory.Upgrading, "Upgrading the hardware to "+m.Spec.Hardware.Version) {
		return nil
	}
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.UpgradeVM_Task(ctx, c, &types.UpgradeVM_Task{This: vm, Version: m.Spec.Hardware.Version})
		if err != nil && fault.Is(err, &types.AlreadyUpgraded{}) {
			return ref{}, nil
		}
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}

// resize starts to increase sizes of a VM that runs.
func (d *driver) resize(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	info := d.session.inv.Info(id)
	due, err := kit.Increases(m, info.Sizes.Of(m))
	if err != nil || len(due) == 0 {
		return err
	}
	vm, _ := d.session.inv.BeginSync(id, hypervisor.KeyOf(m), inventory.SyncSizes, kit.IncreaseText(due))
	if vm == (ref{}) {
		return nil
	}
	return d.reconfigure(ctx, id, vm, info.Sizes.ResizeConfig(due))
}

// reconfigure starts to change the settings of a VM.
func (d *driver) reconfigure(ctx context.Context, id uuid.UUID, vm ref, config types.VirtualMachineConfigSpec) error {
	return d.startTask(ctx, id, func(ctx context.Context, c *vim25.Client) (ref, error) {
		res, err := methods.ReconfigVM_Task(ctx, c, &types.ReconfigVM_Task{This: vm, Spec: config})
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
}

// removeUserData removes the bootstrap data from a VM's settings.
func (d *driver) removeUserData(ctx context.Context, m *vspherev1.NovaVSphereMachine) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err != nil {
		return err
	}
	vm, _ := d.session.inv.BeginSync(id, hypervisor.KeyOf(m), inventory.SyncUserData, "Removing the user data from the VM's settings")
	if vm == (ref{}) {
		return nil
	}
	config := types.VirtualMachineConfigSpec{}
	for _, key := range spec.BootstrapDataKeys {
		// An empty value removes the key.
		config.ExtraConfig = append(config.ExtraConfig, &types.OptionValue{Key: key, Value: ""})
	}
	return d.reconfigure(ctx, id, vm, config)
}
