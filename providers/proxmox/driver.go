package proxmox

import (
	"context"
	"slices"
	"strconv"

	"github.com/google/uuid"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
)

// driver is a session as the machines of one cluster use it.
type driver struct {
	session *site.Session
	// siteID is the ID of the Proxmox VE cluster.
	siteID  string
	cluster *proxmoxv1.NovaProxmoxCluster
	// bounds are the objects that the identity of the cluster allows.
	bounds plan.Bounds
	// endpoint is the address of the API server of the workload cluster, if it is
	// known.
	endpoint string
}

var (
	_ hypervisor.Driver[*proxmoxv1.NovaProxmoxMachine] = &driver{}
	_ hypervisor.EndpointIdentifier                    = &driver{}
)

// EndpointID returns the ID of the Proxmox VE cluster.
func (d *driver) EndpointID() string { return d.siteID }

// view is the known state of the VM of a machine.
type view struct {
	site.Found

	id      uuid.UUID
	machine site.Machine
	state   hypervisor.State
	message string
}

// hasImage reports whether the image with the bootstrap data may exist.
func (v *view) hasImage() bool { return v.Mark.ISO != "" || v.Image.Storage != "" }

// hasUserData reports whether a complete VM has bootstrap data.
func (v *view) hasUserData() bool { return v.Complete && v.hasImage() }

// mayHaveImage reports whether an earlier process may have left the image of a complete VM. A
// deletion waits for it at its end.
func (v *view) mayHaveImage(deleting bool) bool {
	return v.Complete && !deleting && !v.hasImage() && !v.ImagesRead && !v.machine.ImageDeleted
}

func (d *driver) clusterID() string { return d.cluster.Annotations[infrav1.ClusterIDAnnotation] }

// look returns the known state of the VM of m.
func (d *driver) look(m *proxmoxv1.NovaProxmoxMachine) (view, error) {
	id, err := kit.MachineUUID(d.clusterID(), hypervisor.KeyOf(m))
	if err != nil {
		return view{}, err
	}
	found := d.session.Find(id, plan.Candidates(&d.cluster.Spec, id))
	// A VM that was up is complete, also if a user removed its tags.
	found.Complete = found.Complete || found.VM != nil && m.Spec.ProviderID != ""
	v := view{id: id, Found: found, machine: d.session.Machine(id, hypervisor.KeyOf(m))}
	v.state, v.message, err = v.stateOf(!m.DeletionTimestamp.IsZero())
	return v, err
}

// stateOf returns the state of a VM. A shutdown may not complete, because the guest
// ignores it: a VM that is to be deleted is Running until then.
func (v *view) stateOf(deleting bool) (hypervisor.State, string, error) {
	switch {
	case v.machine.Busy && (v.machine.Verb != site.Shutdown || !deleting):
		return hypervisor.Busy, string(v.machine.Verb), nil
	case v.Outdated:
		return hypervisor.Busy, "Waiting for the next list of guests", nil
	case v.Unclear && v.VM == nil:
		return hypervisor.Busy, "Reading the description of a VM that may belong to this machine", nil
	case v.VM == nil:
		return hypervisor.Absent, "", nil
	}
	return v.stateOfVM(deleting)
}

// stateOfVM returns the state of a VM that exists, from the list.
func (v *view) stateOfVM(deleting bool) (hypervisor.State, string, error) {
	switch v.VM.Status {
	case "running":
		return hypervisor.Running, "", nil
	case "stopped":
		if v.VM.Lock != "" && v.VM.Lock != "suspended" {
			return hypervisor.Busy, "The VM is locked (" + v.VM.Lock + ")", nil
		}
		if !v.Complete && !deleting {
			return hypervisor.Absent, "", nil
		}
		return hypervisor.Stopped, "", nil
	default:
		if v.VM.Lock != "" || !v.Complete {
			return hypervisor.Busy, "Waiting for the status of the VM", nil
		}
		return "", "", hypervisor.Failure(infrav1.HypervisorErrorReason, "the node %s does not report the status of the VM (%s): the node may be offline", v.VM.Node, v.VM.Status)
	}
}

// Observe reports the VM of m from the list. It returns an error if the session was
// opened again with another Proxmox VE cluster after the driver was connected.
func (d *driver) Observe(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) (hypervisor.VM, error) {
	vm, err := d.observe(ctx, m)
	if id, _ := d.session.Info(); err == nil && id != d.siteID {
		err = kit.EndpointReplaced(d.session.Server())
	}
	if err != nil {
		return hypervisor.VM{}, err
	}
	return vm, nil
}

func (d *driver) observe(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) (hypervisor.VM, error) {
	if d.clusterID() == "" && m.Spec.ProviderID == "" {
		// The cluster ID is set before the first request, so there is no VM.
		return hypervisor.VM{State: hypervisor.Absent}, nil
	}
	if err := d.session.Ready(ctx, hypervisor.KeyOf(m)); err != nil {
		return hypervisor.VM{}, err
	}
	v, err := d.look(m)
	if err != nil {
		return hypervisor.VM{}, err
	}
	deleting := !m.DeletionTimestamp.IsZero()
	out := hypervisor.VM{State: v.state, Message: v.message, LastFailure: v.failure(deleting)}
	if v.VM != nil {
		out.ID, out.ProviderID = strconv.Itoa(v.VM.VMID), d.cluster.Spec.GetProviderIDPrefix()+"://"+v.id.String()
		out.Zone, out.UserData = plan.ZoneOf(&d.cluster.Spec, &v.Mark), v.hasUserData()
	}
	if v.VM == nil && v.state == hypervisor.Absent {
		return d.confirmAbsent(ctx, m, &v, out)
	}
	if v.mayHaveImage(deleting) {
		d.session.AwaitImages(v.id)
		return out, site.Busy("reading which bootstrap data exists")
	}
	if v.VM != nil || v.state == hypervisor.Busy {
		d.session.Query(v.id, v.machine.VMID, v.state == hypervisor.Running && !deleting, out.UserData)
	}
	d.compare(m, &v, &out)
	d.session.SetActive(v.id, v.state != hypervisor.Running || len(out.Addresses) == 0 && out.LastFailure == nil || deleting)
	return out, nil
}

// compare adds the properties of a VM and its differences to out.
func (d *driver) compare(m *proxmoxv1.NovaProxmoxMachine, v *view, out *hypervisor.VM) {
	if v.state == hypervisor.Running {
		d.running(m, v, out)
	}
	d.outOfSync(m, v, out)
	if v.state == hypervisor.Running && v.Complete {
		kit.ReportSizes(m, plan.Sizes(m, v.VM), out)
	}
}

// outOfSync adds the parts of a VM that differ from m to out.
func (d *driver) outOfSync(m *proxmoxv1.NovaProxmoxMachine, v *view, out *hypervisor.VM) {
	if v.Complete && out.UserData {
		out.ToSync = append(out.ToSync, userData)
	}
	if v.Complete && m.DeletionTimestamp.IsZero() && (v.state == hypervisor.Running || v.state == hypervisor.Stopped) {
		if _, same := plan.WantedTags(d.clusterID(), &d.cluster.Spec, m, v.Mark, v.VM.TagList()); !same {
			out.OutOfSync, out.ToSync = "Changing the tags", append(out.ToSync, tags)
		}
	}
	if _, same := d.wantedHA(m, v); v.Complete && m.DeletionTimestamp.IsZero() && v.state == hypervisor.Running && !same {
		out.ToSync = append(out.ToSync, highAvailability)
		if !out.UserData { // the node has joined
			out.OutOfSync = "Changing the settings in the HA manager"
		}
	}
}

// running adds the properties of a running VM to out.
func (d *driver) running(m *proxmoxv1.NovaProxmoxMachine, v *view, out *hypervisor.VM) {
	if out.Host = v.VM.Node; v.VM.HAState == haError {
		out.Message = haGaveUp
	}
	out.Report = hypervisor.ParseReport(v.machine.Report)
	if s, err := plan.SettingsOf(&d.cluster.Spec, &m.Spec, out.Zone); err == nil {
		out.NICs = plan.NICs(v.id, &s, v.machine.Network)
		out.Addresses = kit.NodeAddresses(m.Name, out.NICs, d.endpoint)
	}
}

// failure returns the failure of the last action while it can be repeated.
func (v *view) failure(deleting bool) error {
	if v.machine.Failure == nil || v.state == hypervisor.Busy {
		return nil
	}
	needed := map[site.Verb]bool{
		site.Start: v.state == hypervisor.Stopped && !deleting, site.Stop: v.state == hypervisor.Running && deleting, site.Destroy: v.state == hypervisor.Stopped && deleting,
		site.Clone: v.state == hypervisor.Absent && !deleting, site.Resize: v.state == hypervisor.Absent, site.Upload: v.state == hypervisor.Absent, site.Configure: v.state == hypervisor.Absent,
	}
	if !needed[v.machine.Verb] {
		return nil
	}
	return v.machine.Failure
}

// confirmAbsent confirms that a VM does not exist: the list has only the VMs that the
// user can see. A machine that is being deleted is Stopped while its image with the
// bootstrap data exists.
func (d *driver) confirmAbsent(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, v *view, out hypervisor.VM) (hypervisor.VM, error) {
	deleting := !m.DeletionTimestamp.IsZero()
	d.session.SetActive(v.id, false)
	d.session.CreationQueue.Done(hypervisor.KeyOf(m))
	if m.Spec.ProviderID == "" && !deleting {
		return out, nil
	}
	if !v.machine.Deleted {
		if err := d.session.Quorate(ctx); err != nil {
			return out, err
		}
		if m.Spec.ProviderID != "" {
			if err := d.confirmUnlisted(ctx, m, v); err != nil {
				return out, err
			}
		} else if unknown, soon := d.session.MayAppear(v.id, m.CreationTimestamp.Time); soon {
			return hypervisor.VM{State: hypervisor.Busy, Message: "Checking that no VM is being created"}, nil
		} else if unknown {
			if confirmed, err := d.session.ConfirmUnseen(v.id); err != nil || !confirmed {
				return hypervisor.VM{State: hypervisor.Busy, Message: "Checking that no VM is being created"}, err
			}
		}
	}
	switch {
	case !deleting:
		return hypervisor.VM{State: hypervisor.Absent}, nil
	case !v.ImagesRead:
		d.session.AwaitImages(v.id)
		return hypervisor.VM{State: hypervisor.Busy, Message: "Reading which bootstrap data exists"}, nil
	case v.Image.Storage != "":
		return hypervisor.VM{State: hypervisor.Stopped, Message: "The bootstrap data of a VM that was deleted exists"}, nil
	}
	d.session.Forget(v.id, hypervisor.KeyOf(m))
	return hypervisor.VM{State: hypervisor.Absent}, nil
}

// confirmUnlisted returns an error if the VM of a machine may exist although the user
// cannot see it. The ID in the status is only a hint: a move of the cluster drops it.
func (d *driver) confirmUnlisted(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, v *view) error {
	ids := v.Unlisted
	if id, err := strconv.Atoi(m.Status.VMID); err == nil && slices.Contains(ids, id) {
		ids = []int{id}
	}
	for _, id := range ids {
		exists, err := d.session.Exists(ctx, id)
		if err != nil {
			return err
		}
		if exists {
			return hypervisor.Failure(infrav1.HypervisorErrorReason, "a guest with the ID %d exists, and the user cannot see it: it may be the VM of this machine. Add the permission VM.Audit for it", id)
		}
	}
	return nil
}
