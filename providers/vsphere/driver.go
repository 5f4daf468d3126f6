package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/resolve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

type ref = types.ManagedObjectReference

// driver uses one session for the machines of one cluster.
type driver struct {
	session *session
	// vCenterID is the vCenter's own UUID.
	vCenterID string
	clusterID string
	cluster   *vspherev1.NovaVSphereClusterSpec
	// names resolves the names of objects.
	names *resolve.Resolver
	// endpoint is the host of the API server of the workload cluster, which moves
	// between machines; empty if it is not known.
	endpoint string
}

// EndpointID returns the vCenter's own UUID, so that VMs do not count as
// deleted if another vCenter has the same host name.
func (d *driver) EndpointID() string { return d.vCenterID }

// startTask sends the request of an action and records the task that vCenter
// started.
func (d *driver) startTask(ctx context.Context, id uuid.UUID, request func(context.Context, *vim25.Client) (ref, error)) error {
	var task ref
	err := d.session.Call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
		task, err = request(ctx, c)
		return err
	})
	if vcenter.IsInvalidPowerState(err) && d.session.inv.RecordPowerError(id, vcenter.AsError(vcenter.Classify(d.session.Server(), err))) {
		return nil
	}
	var nameHolder *ref
	var duplicate *types.DuplicateName
	if err != nil {
		if _, ok := fault.As(err, &duplicate); ok {
			nameHolder, err = &duplicate.Object, nil
		}
	}
	if vcenter.IsNotFound(err) {
		d.session.names.DropAll()
	}
	if vcenter.IsAmbiguous(err) {
		// The task may have started in spite of the error. The next full read of
		// the inventory shows it.
		d.session.Resync()
	}
	d.session.inv.End(id, task, nameHolder)
	return vcenter.Classify(d.session.Server(), err)
}

// state returns the state of the VM of m, and its reference.
func (d *driver) state(id uuid.UUID, m *vspherev1.NovaVSphereMachine) (hypervisor.State, ref) {
	return d.session.inv.StateOf(id, hypervisor.KeyOf(m))
}
