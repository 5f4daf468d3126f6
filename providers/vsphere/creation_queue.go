package vsphere

import (
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// acquireCreationSlot takes a slot for the creation of the VM of the machine
// called key. If too many creations are under way at the vCenter, the error
// states the machine's position in the queue, and the key is delivered once a
// slot is free. Only creations take these slots, so no other operation waits
// for them.
func (d *driver) acquireCreationSlot(key hypervisor.Key) error {
	creations := d.session.creations
	if creations.Acquire(key) {
		return nil
	}
	return hypervisor.Waiting(infrav1.RequestQueuedReason, "Queued: vCenter %s creates as many VMs as the limit allows; this VM is number %d in the queue of its namespace",
		d.session.Server(), creations.Position(key))
}

// releaseCreationSlot releases the slot of a machine whose VM is not being
// created. If the machine is being deleted, it also leaves the queue.
func (d *driver) releaseCreationSlot(key hypervisor.Key, state hypervisor.State, deleting bool) {
	switch {
	case state == hypervisor.Busy:
	case deleting:
		d.session.creations.Release(key)
	default:
		d.session.creations.Done(key)
	}
}
