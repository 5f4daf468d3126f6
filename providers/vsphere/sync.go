package vsphere

import (
	"context"

	"github.com/google/uuid"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
)

// Syncers returns the parts of a VM that are changed to match its machine. The
// user data of a control plane machine holds the keys of all CAs, so its
// removal does not wait for parts that may never succeed. The VM runs on
// meanwhile.
func (d *driver) Syncers() []hypervisor.Syncer[*vspherev1.NovaVSphereMachine] {
	return []hypervisor.Syncer[*vspherev1.NovaVSphereMachine]{
		{Name: inventory.SyncUserData, AfterJoin: true, Apply: d.removeUserData},
		{Name: inventory.SyncHardware, Apply: d.upgrade},
		{Name: inventory.SyncRules, Apply: d.changeRules},
		{Name: inventory.SyncTags, Apply: d.setTags},
	}
}

// changeRules starts to change the anti-affinity rule of the machine's group
// and its VM group.
func (d *driver) changeRules(_ context.Context, m *vspherev1.NovaVSphereMachine) error {
	return d.startSync(m, d.session.rules.sync)
}

// setTags starts to set tags and custom attributes.
func (d *driver) setTags(_ context.Context, m *vspherev1.NovaVSphereMachine) error {
	return d.startSync(m, d.session.tags.sync)
}

// startSync queues a machine for a worker.
func (d *driver) startSync(m *vspherev1.NovaVSphereMachine, queue func(uuid.UUID, hypervisor.Key)) error {
	id, err := kit.MachineUUID(d.clusterID, hypervisor.KeyOf(m))
	if err == nil {
		queue(id, hypervisor.KeyOf(m))
	}
	return err
}
