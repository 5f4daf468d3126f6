package zvirt

import (
	"strings"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// driver is one session, seen by the machines of one cluster.
type driver struct {
	session *engine.Session
	cluster *infrav1.NovaZVirtCluster
	// bounds are what the cluster's identity allows.
	bounds engine.Bounds
	// endpoint is the address of the tenant's API server, if it is known.
	endpoint string
}

// identify returns the UUID that marks the VM behind m.
func (d *driver) identify(m *infrav1.NovaZVirtMachine) (uuid.UUID, error) {
	return plan.Identify(d.cluster.Annotations[infrav1.ClusterIDAnnotation], keyOf(m))
}

// look returns what is known of the VM behind m, and what its mark says.
func (d *driver) look(id uuid.UUID, m *infrav1.NovaZVirtMachine) (ovirt.View, plan.Mark) {
	v := d.session.Mirror.Look(id.String(), m.Spec.VMName(m), vmID(m))
	if v.VM == nil {
		return v, plan.Mark{ID: id}
	}
	said, _ := plan.ReadMark(v.VM.Comment)
	return v, said
}

// state says what the VM behind m, as it was looked at, is like. While its power
// is being taken away it is Busy, whatever the engine says: it is not asked at
// each look.
func (d *driver) state(id uuid.UUID, m *infrav1.NovaZVirtMachine, v ovirt.View) (hypervisor.State, string, error) {
	deleting := !m.DeletionTimestamp.IsZero()
	state, message, err := plan.State(v, deleting)
	if on := state == hypervisor.Running || state == hypervisor.Stopped && v.VM.Status != "down"; deleting && on && d.session.Stopping(id) {
		return hypervisor.Busy, "The engine was asked to power the VM off", nil
	}
	return state, message, err
}

// EndpointID returns the ID that the engine generated for itself. Another engine
// that is reached under the same name has another ID.
func (d *driver) EndpointID() string {
	id, _ := d.session.Site()
	return id
}

// keyOf returns the name of m in the management cluster.
func keyOf(m *infrav1.NovaZVirtMachine) hypervisor.Key {
	return hypervisor.Key{Namespace: m.Namespace, Name: m.Name}
}

// vmID returns the ID of the VM that m is published with, if it is.
func vmID(m *infrav1.NovaZVirtMachine) string {
	_, id, _ := strings.Cut(m.Spec.ProviderID, "://")
	return id
}

var (
	_ hypervisor.Driver[*infrav1.NovaZVirtMachine] = &driver{}
	_ hypervisor.EndpointIdentifier                = &driver{}
)
