package vsphere

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

type moref = types.ManagedObjectReference

// cloneTask is the description ID of the task of CloneVM_Task.
const cloneTask = "VirtualMachine.clone"

// maxVMs limits the VMs of one vCenter. vCenter 8 supports 45,000.
const maxVMs = 100_000

// taskInfo has the properties that the stream reported for a task of any user.
type taskInfo struct {
	state       types.TaskInfoState
	entity      moref
	description string
	// endedAt is when the stream reported the end of the task.
	endedAt time.Time
	// read is set once result and failure were read, which the stream does not
	// report.
	read    bool
	result  moref
	failure *types.LocalizedMethodFault
}

// ended reports whether the task has ended.
func (t *taskInfo) ended() bool { return t.state == types.TaskInfoStateSuccess || t.failed() }

// failed reports whether the task has ended with an error. The error may still
// have to be read.
func (t *taskInfo) failed() bool { return t.state == types.TaskInfoStateError }

// done reports whether the task has ended, with success or with an error that
// is known.
func (t *taskInfo) done() bool { return t.ended() && (t.read || !t.failed()) }

// objectCache is the cache of vCenter's objects that one stream fills.
type objectCache struct {
	// ids has every VM that the account can see. A VM whose UUID vCenter has
	// not reported yet is still being created and has no UUID here.
	ids  map[moref]uuid.UUID
	byID map[uuid.UUID]moref
	// copies has the other VMs with the same UUID.
	copies map[uuid.UUID][]moref
	// unreadNames has the names of VMs whose UUID was never read: VMs that are
	// still being created, and VMs that vCenter cannot read.
	unreadNames map[moref]string
	// names has the names of VMs whose UUID is derived.
	names map[moref]string
	// vms has the VMs whose UUID is derived, including ours.
	vms   map[moref]*vmInfo
	tasks map[moref]*taskInfo
	// unlisted are the tasks that vCenter does not list any more, until the owner
	// of the objects has handled them.
	unlisted []moref
	// hosts and clusters are those in which VMs of ours run.
	hosts    map[moref]*hostInfo
	clusters map[moref]*clusterInfo
	// usableHosts is the number of hosts of a compute cluster that can run VMs:
	// those that respond and are not in maintenance mode.
	usableHosts map[moref]int32
}

// newObjectCache returns no objects.
func newObjectCache() *objectCache {
	return &objectCache{
		ids: map[moref]uuid.UUID{}, byID: map[uuid.UUID]moref{}, unreadNames: map[moref]string{}, names: map[moref]string{},
		vms: map[moref]*vmInfo{}, tasks: map[moref]*taskInfo{}, copies: map[uuid.UUID][]moref{},
		hosts: map[moref]*hostInfo{}, clusters: map[moref]*clusterInfo{}, usableHosts: map[moref]int32{},
	}
}

// checkSize returns an error if vCenter reports more VMs than any vCenter has:
// a server that invents VMs must not fill the memory of the manager.
func (o *objectCache) checkSize() error {
	if len(o.ids) <= maxVMs {
		return nil
	}
	return fmt.Errorf("it reports more than %d VMs", maxVMs)
}

// apply stores updates and returns the UUIDs of the affected VMs.
func (o *objectCache) apply(updates []types.ObjectUpdate) (touched []uuid.UUID) {
	for _, u := range updates {
		switch {
		case u.Obj.Type == "Task":
			o.applyTask(u)
		case u.Obj.Type == "HostSystem":
			o.applyHost(u)
			touched = append(touched, o.allUUIDs()...)
		case u.Obj.Type == "ClusterComputeResource":
			o.applyCluster(u)
			touched = append(touched, o.allUUIDs()...)
		case u.Kind == types.ObjectUpdateKindLeave:
			touched = append(touched, o.removeVM(u.Obj))
		default:
			before := o.ids[u.Obj]
			o.applyVM(u)
			touched = append(touched, before, o.ids[u.Obj])
		}
	}
	return touched
}

// allUUIDs returns the UUIDs of all VMs that may be ours.
func (o *objectCache) allUUIDs() []uuid.UUID { return slices.Collect(maps.Keys(o.byID)) }

// removeVM removes a VM that left the inventory and returns its UUID.
func (o *objectCache) removeVM(vm moref) uuid.UUID {
	id := o.ids[vm]
	o.unassignUUID(vm, id)
	delete(o.ids, vm)
	delete(o.vms, vm)
	delete(o.unreadNames, vm)
	delete(o.names, vm)
	return id
}

// applyVM stores the changed properties of a VM, from either filter.
func (o *objectCache) applyVM(u types.ObjectUpdate) {
	if _, known := o.ids[u.Obj]; !known {
		o.ids[u.Obj] = uuid.Nil
	}
	for _, c := range u.ChangeSet {
		switch c.Name {
		case "config.instanceUuid":
			o.identify(u.Obj, c.Val)
			continue
		case "name":
			o.unreadNames[u.Obj], _ = c.Val.(string)
			continue
		}
		info := o.vms[u.Obj]
		if info == nil {
			info = &vmInfo{}
			o.vms[u.Obj] = info
		}
		info.apply(c.Name, c.Val)
	}
	o.markRead(u.Obj)
}

// markRead records that a VM's UUID is known, if it is. Its name is kept if the
// VM may be ours.
func (o *objectCache) markRead(vm moref) {
	if o.ids[vm] == uuid.Nil {
		return
	}
	if name, ok := o.unreadNames[vm]; ok && o.ids[vm].Version() == spec.DerivedVersion {
		o.names[vm] = name
	}
	delete(o.unreadNames, vm)
}

// identify records a VM's instance UUID. A VM keeps its UUID while vCenter
// cannot read it because the VM's host or datastore is not accessible.
func (o *objectCache) identify(vm moref, value any) {
	text, _ := value.(string)
	id, err := uuid.Parse(text)
	if err != nil {
		return
	}
	o.unassignUUID(vm, o.ids[vm])
	o.assignUUID(vm, id)
}

// assignUUID records that vm has the UUID id. In one vCenter, two VMs have the
// same UUID only if a user has set it for a copy.
func (o *objectCache) assignUUID(vm moref, id uuid.UUID) {
	o.ids[vm] = id
	if other, taken := o.byID[id]; taken && other != vm {
		o.copies[id] = append(o.copies[id], other)
	}
	o.byID[id] = vm
}

// unassignUUID records that vm does not have the UUID id any more.
func (o *objectCache) unassignUUID(vm moref, id uuid.UUID) {
	rest := slices.DeleteFunc(o.copies[id], func(other moref) bool { return other == vm })
	if o.byID[id] == vm {
		delete(o.byID, id)
		if len(rest) > 0 {
			o.byID[id], rest = rest[0], rest[1:]
		}
	}
	if len(rest) == 0 {
		delete(o.copies, id)
	} else {
		o.copies[id] = rest
	}
}

// keepUUIDs keeps the UUIDs that an earlier cache had and o could not read.
func (o *objectCache) keepUUIDs(from *objectCache) {
	for vm, id := range o.ids {
		if old := from.ids[vm]; id == uuid.Nil && old != uuid.Nil {
			o.assignUUID(vm, old)
			o.markRead(vm)
		}
	}
}

// hasUnreadable reports whether there is a VM called name whose UUID cannot be
// read. vCenter may show such a VM under the path of its file.
func (o *objectCache) hasUnreadable(name string) bool {
	for _, n := range o.unreadNames {
		if n == name || strings.TrimSuffix(path.Base(n), ".vmx") == name {
			return true
		}
	}
	return false
}

// applyTask stores the changed properties of a task. A task that has ended
// leaves the list minutes later.
func (o *objectCache) applyTask(u types.ObjectUpdate) {
	task := o.tasks[u.Obj]
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.tasks, u.Obj)
		o.unlisted = append(o.unlisted, u.Obj)
		return
	}
	if task == nil {
		task = &taskInfo{}
		o.tasks[u.Obj] = task
	}
	for _, c := range u.ChangeSet {
		switch c.Name {
		case "info.state":
			task.state, _ = c.Val.(types.TaskInfoState)
			if task.ended() && task.endedAt.IsZero() {
				task.endedAt = time.Now()
			}
		case "info.entity":
			task.entity, _ = c.Val.(moref)
		case "info.descriptionId":
			task.description, _ = c.Val.(string)
		}
	}
}

// duplicateVMs returns the names of the VMs with a UUID.
func (o *objectCache) duplicateVMs(id uuid.UUID) []string {
	names := []string{o.byID[id].Value}
	for _, vm := range o.copies[id] {
		names = append(names, vm.Value)
	}
	slices.Sort(names)
	return names
}

// hostInfo is a host on which VMs of ours run.
type hostInfo struct {
	name string
	// parent is its compute cluster, or the compute resource of a standalone
	// host.
	parent moref
}

// applyHost stores the changed properties of a host.
func (o *objectCache) applyHost(u types.ObjectUpdate) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.hosts, u.Obj)
		return
	}
	host := o.hosts[u.Obj]
	if host == nil {
		host = &hostInfo{}
		o.hosts[u.Obj] = host
	}
	for _, c := range u.ChangeSet {
		switch c.Name {
		case "name":
			host.name, _ = c.Val.(string)
		case "parent":
			host.parent, _ = c.Val.(moref)
		}
	}
}

// hostName returns the name of the host on which a VM runs.
func (o *objectCache) hostName(v *vmInfo) string {
	if host := o.hosts[v.host]; host != nil {
		return host.name
	}
	return ""
}

// clusterOf returns the compute cluster in which a VM runs; none on a
// standalone host.
func (o *objectCache) clusterOf(v *vmInfo) (moref, bool) {
	host := o.hosts[v.host]
	if host == nil || host.parent.Type != "ClusterComputeResource" {
		return moref{}, false
	}
	return host.parent, true
}

// clusterInfo is a compute cluster in which VMs of ours run.
type clusterInfo struct {
	spec.ClusterSettings
	// stale is set when the settings may be out of date, partial when vCenter
	// reported only a part of a change of them.
	stale, partial bool
}

// newClusterInfo returns a compute cluster with the given settings.
func newClusterInfo(config *types.ClusterConfigInfoEx) *clusterInfo {
	return &clusterInfo{ClusterSettings: spec.NewClusterSettings(config)}
}

// applyCluster stores the changed properties of a compute cluster.
func (o *objectCache) applyCluster(u types.ObjectUpdate) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.clusters, u.Obj)
		delete(o.usableHosts, u.Obj)
		return
	}
	for _, c := range u.ChangeSet {
		if c.Name == usableProperty {
			o.usableHosts[u.Obj], _ = c.Val.(int32)
			continue
		}
		config, whole := c.Val.(types.ClusterConfigInfoEx)
		if c.Name != settingsProperty || !whole {
			if known := o.clusters[u.Obj]; known != nil {
				known.stale, known.partial = true, true
			}
			continue
		}
		o.clusters[u.Obj] = newClusterInfo(&config)
	}
}

// clusterInfoOf returns the compute cluster of a VM, with its settings if these
// are known.
func (o *objectCache) clusterInfoOf(info *vmInfo) (moref, *clusterInfo) {
	at, ok := o.clusterOf(info)
	if !ok {
		return moref{}, nil // a standalone host has no rules
	}
	return at, o.clusters[at]
}

// markStale makes a worker read a compute cluster's settings before the next
// change.
func (o *objectCache) markStale(at moref) {
	if cluster := o.clusters[at]; cluster != nil {
		cluster.stale = true
	}
}

// takePartial returns the compute clusters for which vCenter reported only a
// part of a change, and marks them as read.
func (o *objectCache) takePartial() (clusters []moref) {
	for at, cluster := range o.clusters {
		if cluster.partial {
			cluster.partial = false
			clusters = append(clusters, at)
		}
	}
	return clusters
}

// readTask reads a task with its result and its error.
func readTask(ctx context.Context, c *vim25.Client, task moref) (*taskInfo, error) {
	var t mo.Task
	if err := object.NewCommon(c, task).Properties(ctx, task, []string{"info"}, &t); err != nil {
		return nil, err
	}
	info := &taskInfo{state: t.Info.State, description: t.Info.DescriptionId, failure: t.Info.Error}
	if t.Info.Entity != nil {
		info.entity = *t.Info.Entity
	}
	info.result, _ = t.Info.Result.(moref)
	if info.ended() {
		info.read, info.endedAt = true, time.Now()
	}
	return info, nil
}
