package cache

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

type ref = types.ManagedObjectReference

// maxVMs limits the VMs of one vCenter. vCenter 8 supports 45,000.
const maxVMs = 100_000

// Task has the properties that the stream reported for a task of any user.
type Task struct {
	State       types.TaskInfoState
	Entity      ref
	Description string
	// EndedAt is when the stream reported the end of the task.
	EndedAt time.Time
	// Read is set once result and failure were read, which the stream does not
	// report.
	Read    bool
	Result  ref
	Failure *types.LocalizedMethodFault
}

// Ended reports whether the task has ended.
func (t *Task) Ended() bool { return t.State == types.TaskInfoStateSuccess || t.Failed() }

// Failed reports whether the task has ended with an error. The error may still
// have to be read.
func (t *Task) Failed() bool { return t.State == types.TaskInfoStateError }

// Done reports whether the task has ended, with success or with an error that
// is known.
func (t *Task) Done() bool { return t.Ended() && (t.Read || !t.Failed()) }

// Objects is the cache of vCenter's objects that one stream fills.
type Objects struct {
	// IDs has every VM that the account can see. A VM whose UUID vCenter has
	// not reported yet is still being created and has no UUID here.
	IDs  map[ref]uuid.UUID
	ByID map[uuid.UUID]ref
	// copies has the other VMs with the same UUID.
	copies map[uuid.UUID][]ref
	// unreadNames has the names of VMs whose UUID was never read: VMs that are
	// still being created, and VMs that vCenter cannot read.
	unreadNames map[ref]string
	// Names has the names of VMs whose UUID is derived.
	Names map[ref]string
	// VMs has the VMs whose UUID is derived, including ours.
	VMs   map[ref]*VM
	Tasks map[ref]*Task
	// Unlisted are the tasks that vCenter does not list any more, until the owner
	// of the objects has handled them.
	Unlisted []ref
	// Hosts and clusters are those in which VMs of ours run.
	Hosts    map[ref]*Host
	Clusters map[ref]*ComputeCluster
	// UsableHosts is the number of hosts of a compute cluster that can run VMs:
	// those that respond and are not in maintenance mode.
	UsableHosts map[ref]int32
}

// NewObjects returns no objects.
func NewObjects() *Objects {
	return &Objects{
		IDs: map[ref]uuid.UUID{}, ByID: map[uuid.UUID]ref{}, unreadNames: map[ref]string{}, Names: map[ref]string{},
		VMs: map[ref]*VM{}, Tasks: map[ref]*Task{}, copies: map[uuid.UUID][]ref{},
		Hosts: map[ref]*Host{}, Clusters: map[ref]*ComputeCluster{}, UsableHosts: map[ref]int32{},
	}
}

// checkSize returns an error if vCenter reports more VMs than any vCenter has:
// a server that invents VMs must not fill the memory of the manager.
func (o *Objects) checkSize() error {
	if len(o.IDs) <= maxVMs {
		return nil
	}
	return fmt.Errorf("it reports more than %d VMs", maxVMs)
}

// Apply stores updates and returns the UUIDs of the affected VMs.
func (o *Objects) Apply(updates []types.ObjectUpdate) (touched []uuid.UUID) {
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
			before := o.IDs[u.Obj]
			o.applyVM(u)
			touched = append(touched, before, o.IDs[u.Obj])
		}
	}
	return touched
}

// allUUIDs returns the UUIDs of all VMs that may be ours.
func (o *Objects) allUUIDs() []uuid.UUID { return slices.Collect(maps.Keys(o.ByID)) }

// removeVM removes a VM that left the inventory and returns its UUID.
func (o *Objects) removeVM(vm ref) uuid.UUID {
	id := o.IDs[vm]
	o.unassignUUID(vm, id)
	delete(o.IDs, vm)
	delete(o.VMs, vm)
	delete(o.unreadNames, vm)
	delete(o.Names, vm)
	return id
}

// applyVM stores the changed properties of a VM, from either filter.
func (o *Objects) applyVM(u types.ObjectUpdate) {
	if _, known := o.IDs[u.Obj]; !known {
		o.IDs[u.Obj] = uuid.Nil
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
		info := o.VMs[u.Obj]
		if info == nil {
			info = &VM{}
			o.VMs[u.Obj] = info
		}
		info.apply(c.Name, c.Val)
	}
	o.markRead(u.Obj)
}

// markRead records that a VM's UUID is known, if it is. Its name is kept if the
// VM may be ours.
func (o *Objects) markRead(vm ref) {
	if o.IDs[vm] == uuid.Nil {
		return
	}
	if name, ok := o.unreadNames[vm]; ok && o.IDs[vm].Version() == spec.DerivedVersion {
		o.Names[vm] = name
	}
	delete(o.unreadNames, vm)
}

// identify records a VM's instance UUID. A VM keeps its UUID while vCenter
// cannot read it because the VM's host or datastore is not accessible.
func (o *Objects) identify(vm ref, value any) {
	text, _ := value.(string)
	id, err := uuid.Parse(text)
	if err != nil {
		return
	}
	o.unassignUUID(vm, o.IDs[vm])
	o.AssignUUID(vm, id)
}

// AssignUUID records that vm has the UUID id. In one vCenter, two VMs have the
// same UUID only if a user has set it for a copy.
func (o *Objects) AssignUUID(vm ref, id uuid.UUID) {
	o.IDs[vm] = id
	if other, taken := o.ByID[id]; taken && other != vm {
		o.copies[id] = append(o.copies[id], other)
	}
	o.ByID[id] = vm
}

// unassignUUID records that vm does not have the UUID id any more.
func (o *Objects) unassignUUID(vm ref, id uuid.UUID) {
	rest := slices.DeleteFunc(o.copies[id], func(other ref) bool { return other == vm })
	if o.ByID[id] == vm {
		delete(o.ByID, id)
		if len(rest) > 0 {
			o.ByID[id], rest = rest[0], rest[1:]
		}
	}
	if len(rest) == 0 {
		delete(o.copies, id)
	} else {
		o.copies[id] = rest
	}
}

// KeepUUIDs keeps the UUIDs that an earlier cache had and o could not read.
func (o *Objects) KeepUUIDs(from *Objects) {
	for vm, id := range o.IDs {
		if old := from.IDs[vm]; id == uuid.Nil && old != uuid.Nil {
			o.AssignUUID(vm, old)
			o.markRead(vm)
		}
	}
}

// HasUnreadable reports whether there is a VM called name whose UUID cannot be
// read. vCenter may show such a VM under the path of its file.
func (o *Objects) HasUnreadable(name string) bool {
	for _, n := range o.unreadNames {
		if n == name || strings.TrimSuffix(path.Base(n), ".vmx") == name {
			return true
		}
	}
	return false
}

// applyTask stores the changed properties of a task. A task that has ended
// leaves the list minutes later.
func (o *Objects) applyTask(u types.ObjectUpdate) {
	task := o.Tasks[u.Obj]
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.Tasks, u.Obj)
		o.Unlisted = append(o.Unlisted, u.Obj)
		return
	}
	if task == nil {
		task = &Task{}
		o.Tasks[u.Obj] = task
	}
	for _, c := range u.ChangeSet {
		switch c.Name {
		case "info.state":
			task.State, _ = c.Val.(types.TaskInfoState)
			if task.Ended() && task.EndedAt.IsZero() {
				task.EndedAt = time.Now()
			}
		case "info.entity":
			task.Entity, _ = c.Val.(ref)
		case "info.descriptionId":
			task.Description, _ = c.Val.(string)
		}
	}
}

// DuplicateVMs returns the names of the VMs with a UUID.
func (o *Objects) DuplicateVMs(id uuid.UUID) []string {
	names := []string{o.ByID[id].Value}
	for _, vm := range o.copies[id] {
		names = append(names, vm.Value)
	}
	slices.Sort(names)
	return names
}

// Host is a host on which VMs of ours run.
type Host struct {
	name string
	// Parent is its compute cluster, or the compute resource of a standalone
	// host.
	Parent ref
}

// applyHost stores the changed properties of a host.
func (o *Objects) applyHost(u types.ObjectUpdate) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.Hosts, u.Obj)
		return
	}
	host := o.Hosts[u.Obj]
	if host == nil {
		host = &Host{}
		o.Hosts[u.Obj] = host
	}
	for _, c := range u.ChangeSet {
		switch c.Name {
		case "name":
			host.name, _ = c.Val.(string)
		case "parent":
			host.Parent, _ = c.Val.(ref)
		}
	}
}

// HostName returns the name of the host on which a VM runs.
func (o *Objects) HostName(v *VM) string {
	if host := o.Hosts[v.Host]; host != nil {
		return host.name
	}
	return ""
}

// ClusterOf returns the compute cluster in which a VM runs; none on a
// standalone host.
func (o *Objects) ClusterOf(v *VM) (types.ManagedObjectReference, bool) {
	host := o.Hosts[v.Host]
	if host == nil || host.Parent.Type != "ClusterComputeResource" {
		return ref{}, false
	}
	return host.Parent, true
}

// ComputeCluster is a compute cluster in which VMs of ours run.
type ComputeCluster struct {
	spec.ClusterSettings
	// Stale is set when the settings may be out of date, partial when vCenter
	// reported only a part of a change of them.
	Stale, partial bool
}

// NewComputeCluster returns a compute cluster with the given settings.
func NewComputeCluster(config *types.ClusterConfigInfoEx) *ComputeCluster {
	return &ComputeCluster{ClusterSettings: spec.NewClusterSettings(config)}
}

// applyCluster stores the changed properties of a compute cluster.
func (o *Objects) applyCluster(u types.ObjectUpdate) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.Clusters, u.Obj)
		delete(o.UsableHosts, u.Obj)
		return
	}
	for _, c := range u.ChangeSet {
		if c.Name == usableProperty {
			o.UsableHosts[u.Obj], _ = c.Val.(int32)
			continue
		}
		config, whole := c.Val.(types.ClusterConfigInfoEx)
		if c.Name != SettingsProperty || !whole {
			if known := o.Clusters[u.Obj]; known != nil {
				known.Stale, known.partial = true, true
			}
			continue
		}
		o.Clusters[u.Obj] = NewComputeCluster(&config)
	}
}

// ComputeClusterOf returns the compute cluster of a VM, with its settings if these
// are known.
func (o *Objects) ComputeClusterOf(info *VM) (types.ManagedObjectReference, *ComputeCluster) {
	at, ok := o.ClusterOf(info)
	if !ok {
		return ref{}, nil // a standalone host has no rules
	}
	return at, o.Clusters[at]
}

// MarkStale makes a worker read a compute cluster's settings before the next
// change.
func (o *Objects) MarkStale(at ref) {
	if cluster := o.Clusters[at]; cluster != nil {
		cluster.Stale = true
	}
}

// takePartial returns the compute clusters for which vCenter reported only a
// part of a change, and marks them as read.
func (o *Objects) takePartial() (clusters []ref) {
	for at, cluster := range o.Clusters {
		if cluster.partial {
			cluster.partial = false
			clusters = append(clusters, at)
		}
	}
	return clusters
}

// ReadTask reads a task with its result and its error.
func ReadTask(ctx context.Context, c *vim25.Client, task ref) (*Task, error) {
	var t mo.Task
	if err := object.NewCommon(c, task).Properties(ctx, task, []string{"info"}, &t); err != nil {
		return nil, err
	}
	info := &Task{State: t.Info.State, Description: t.Info.DescriptionId, Failure: t.Info.Error}
	if t.Info.Entity != nil {
		info.Entity = *t.Info.Entity
	}
	info.Result, _ = t.Info.Result.(ref)
	if info.Ended() {
		info.Read, info.EndedAt = true, time.Now()
	}
	return info, nil
}

// CloneTask is the description ID of the task of CloneVM_Task.
const CloneTask = "VirtualMachine.clone"
