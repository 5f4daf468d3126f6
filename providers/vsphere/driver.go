package vsphere

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// driver is one session, seen by the machines of one cluster.
type driver struct {
	session *session
	// site is the vCenter's own UUID.
	site      string
	clusterID string
	cluster   *infrav1.NovaVSphereClusterSpec
	// bounds are what the cluster's identity allows.
	bounds bounds
}

// SiteID is the vCenter's own UUID, so that another vCenter under the same name
// does not make VMs look gone.
func (d *driver) SiteID() string { return d.site }

// ask sends the one request of an action and notes the task it became.
func (d *driver) ask(ctx context.Context, id uuid.UUID, request func(context.Context, *vim25.Client) (ref, error)) error {
	var task ref
	err := d.session.call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
		task, err = request(ctx, c)
		return err
	})
	if isPowerState(err) && d.session.inv.refuse(id, asError(classify(d.session.endpoint.server, err))) {
		return nil
	}
	var taken *ref
	var duplicate *types.DuplicateName
	if err != nil {
		if _, ok := fault.As(err, &duplicate); ok {
			taken, err = &duplicate.Object, nil
		}
	}
	if isGone(err) {
		d.session.paths.forget()
	}
	if isAmbiguous(err) {
		// The task may run all the same. A world learnt anew has it.
		d.session.relearn()
	}
	d.session.inv.end(id, task, taken)
	return classify(d.session.endpoint.server, err)
}

// state is what the VM behind m is like, and its reference.
func (d *driver) state(id uuid.UUID, m *infrav1.NovaVSphereMachine) (hypervisor.State, ref) {
	return d.session.inv.peek(id, keyOf(m))
}
