package zvirt

import (
	"strings"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// driver is a session as the machines of one cluster use it.
type driver struct {
	session *engine.Session
	// engineID is the ID that the engine generated for itself.
	engineID string
	cluster  *zvirtv1.NovaZVirtCluster
	// bounds are the objects that the identity of the cluster allows.
	bounds engine.Bounds
	// endpoint is the address of the API server of the workload cluster, if it is
	// known.
	endpoint string
}

// identify returns the UUID in the mark of the VM of m.
func (d *driver) identify(m *zvirtv1.NovaZVirtMachine) (uuid.UUID, error) {
	return kit.MachineUUID(d.cluster.Annotations[infrav1.ClusterIDAnnotation], hypervisor.KeyOf(m))
}

// lookup returns the cached state of the VM of m, and its mark.
func (d *driver) lookup(id uuid.UUID, m *zvirtv1.NovaZVirtMachine) (ovirt.Snapshot, plan.Mark) {
	v := d.session.Cache.Get(id.String(), m.Spec.VMName(m), vmID(m))
	if v.VM == nil {
		return v, plan.Mark{ID: id}
	}
	mark, _ := plan.ReadMark(v.VM.Comment)
	return v, mark
}

// state returns the state of the VM of m. After a power-off request, the VM is
// Busy in every status: the driver does not repeat the request with each
// Observe.
func (d *driver) state(id uuid.UUID, m *zvirtv1.NovaZVirtMachine, v ovirt.Snapshot) (hypervisor.State, string, error) {
	deleting := !m.DeletionTimestamp.IsZero()
	state, message, err := plan.State(v, deleting)
	if on := state == hypervisor.Running || state == hypervisor.Stopped && v.VM.Status != "down"; deleting && on && d.session.IsPoweringOff(id) {
		return hypervisor.Busy, "The engine is powering the VM off", nil
	}
	return state, message, err
}

// EndpointID returns the ID that the engine generated for itself. Another engine
// that is reached under the same name has another ID.
func (d *driver) EndpointID() string { return d.engineID }

// vmID returns the ID of the VM from the provider ID of m, or an empty string.
func vmID(m *zvirtv1.NovaZVirtMachine) string {
	_, id, _ := strings.Cut(m.Spec.ProviderID, "://")
	return id
}

var (
	_ hypervisor.Driver[*zvirtv1.NovaZVirtMachine] = &driver{}
	_ hypervisor.EndpointIdentifier                = &driver{}
)
