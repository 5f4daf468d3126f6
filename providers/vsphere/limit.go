package vsphere

import (
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// turn takes a turn to create the VM of the machine called key. If too many
// are under way at the vCenter, the error says which place in line it has, and
// the key is delivered once its turn comes. Nothing but creations asks for a
// turn, so nothing else waits behind them.
func (d *driver) turn(key hypervisor.Key) error {
	turns := d.session.turns
	if turns.Take(key) {
		return nil
	}
	e := failure(infrav1.RequestQueuedReason, "Waiting for its turn: vCenter %s is making as many VMs as it may at a time, this one is number %d in line of its namespace",
		d.session.endpoint.server, turns.Place(key))
	e.Waiting = true
	return e
}

// yield gives back the turn of a machine whose VM is not being made, and with
// going also its place in line.
func (d *driver) yield(key hypervisor.Key, state hypervisor.State, going bool) {
	switch {
	case state == hypervisor.Busy:
	case going:
		d.session.turns.Release(key)
	default:
		d.session.turns.Done(key)
	}
}
