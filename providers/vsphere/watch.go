package vsphere

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// Properties that are streamed. Of foreign VMs, only the UUID and the name are
// streamed, so that ten thousand of them cause no updates.
var (
	idProperties = []string{"config.instanceUuid", "name"}
	vmProperties = []string{
		"config.uuid", "config.version", "runtime.powerState", "runtime.connectionState", "runtime.host", "runtime.question", "customValue",
		"guest.net", "guest.hostName", "guest.toolsRunningStatus", zoneProperty, machineProperty, userDataProperty, ignitionProperty, userDataMarkerProperty, reportProperty,
	}
	hostProperties    = []string{"name", "parent"}
	clusterProperties = []string{settingsProperty, usableProperty}
	// Tasks of all users are streamed. Their results and errors can be large,
	// and are read for tasks of ours only.
	taskProperties = []string{"info.state", "info.entity", "info.descriptionId"}
)

// Properties of a compute cluster: its settings, and the number of its hosts
// that can run VMs.
const (
	settingsProperty = "configurationEx"
	usableProperty   = "summary.numEffectiveHosts"
)

// maxIdlePolls is the number of responses without a VM that end the first read.
// On a busy vCenter each response has tasks, and vCenter may never report a VM.
const maxIdlePolls = 5

// firstPoll is the longest time for a poll while the objects are read.
const firstPoll = 5 * time.Second

// stream is a property collector with two filters: one for the UUIDs of all
// VMs and for recent tasks, the other for the VMs whose UUID is derived.
type stream struct {
	client    *vim25.Client
	inv       *inventory
	collector ref
	list      ref
	version   string
	// pollTime is the time for which a poll waits for updates, and onResponse is
	// called after each poll.
	pollTime   time.Duration
	onResponse func()
	// batchDelay is the time for which new VMs are collected before they are added
	// to the second filter together.
	batchDelay time.Duration

	mu sync.Mutex
	// inView are the VMs in the second filter, and toAdd are those that are
	// about to be added; toRemove are destroyed VMs, which the next request
	// removes.
	inView, toAdd map[ref]bool
	toRemove      []ref
	// collecting is set while a goroutine collects VMs.
	collecting bool
}

const (
	// maxUpdates limits the objects in one response of the property collector.
	maxUpdates = 500
	// maxVMs limits the VMs of one vCenter. vCenter 8 supports 45,000.
	maxVMs = 100_000
)

// openStream creates the collector. vCenter deletes it with the session.
func openStream(ctx context.Context, c *vim25.Client, inv *inventory, p vcenter.Timeouts, onResponse func()) (*stream, error) {
	s := &stream{client: c, inv: inv, pollTime: p.Poll, batchDelay: p.BatchDelay, onResponse: onResponse, inView: map[ref]bool{}, toAdd: map[ref]bool{}}
	all, err := methods.CreateContainerView(ctx, c, &types.CreateContainerView{
		This: *c.ServiceContent.ViewManager, Container: c.ServiceContent.RootFolder,
		Type: []string{"VirtualMachine"}, Recursive: true,
	})
	if err != nil {
		return nil, fmt.Errorf("creating view of VMs: %w", err)
	}
	ours, err := methods.CreateListView(ctx, c, &types.CreateListView{This: *c.ServiceContent.ViewManager})
	if err != nil {
		return nil, fmt.Errorf("creating view of our VMs: %w", err)
	}
	s.list = ours.Returnval
	collector, err := methods.CreatePropertyCollector(ctx, c, &types.CreatePropertyCollector{This: c.ServiceContent.PropertyCollector})
	if err != nil {
		return nil, fmt.Errorf("creating property collector: %w", err)
	}
	s.collector = collector.Returnval

	err = s.filter(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{
			selectMembers(all.Returnval, "ContainerView", "view"),
			selectMembers(*c.ServiceContent.TaskManager, "TaskManager", "recentTask"),
		},
		PropSet: []types.PropertySpec{
			{Type: "VirtualMachine", PathSet: idProperties},
			{Type: "Task", PathSet: taskProperties},
		},
	})
	if err != nil {
		return nil, err
	}
	return s, s.filter(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{selectMembers(s.list, "ListView", "view",
			&types.TraversalSpec{Type: "VirtualMachine", Path: "runtime.host", SelectSet: []types.BaseSelectionSpec{
				&types.TraversalSpec{Type: "HostSystem", Path: "parent"},
			}})},
		PropSet: []types.PropertySpec{
			{Type: "VirtualMachine", PathSet: vmProperties},
			{Type: "HostSystem", PathSet: hostProperties},
			{Type: "ClusterComputeResource", PathSet: clusterProperties},
		},
	})
}

// selectMembers selects the objects in a property of an object, not the object
// itself, and further objects from there.
func selectMembers(of ref, kind, path string, further ...types.BaseSelectionSpec) types.ObjectSpec {
	return types.ObjectSpec{
		Obj: of, Skip: types.NewBool(true),
		SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			Type: kind, Path: path, Skip: types.NewBool(false), SelectSet: further,
		}},
	}
}

func (s *stream) filter(ctx context.Context, spec types.PropertyFilterSpec) error {
	_, err := methods.CreateFilter(ctx, s.client, &types.CreateFilter{This: s.collector, Spec: spec})
	if err != nil {
		return fmt.Errorf("creating filter: %w", err)
	}
	return nil
}

// poll waits for updates; it returns none if vCenter had none for some time.
func (s *stream) poll(ctx context.Context, wait time.Duration) (updates []types.ObjectUpdate, more bool, err error) {
	seconds := int32(wait / time.Second)
	res, err := methods.WaitForUpdatesEx(ctx, s.client, &types.WaitForUpdatesEx{
		This: s.collector, Version: s.version, Options: &types.WaitOptions{MaxWaitSeconds: &seconds, MaxObjectUpdates: maxUpdates},
	})
	if err != nil {
		return nil, false, fmt.Errorf("waiting for updates: %w", err)
	}
	s.onResponse()
	set := res.Returnval
	if set == nil {
		return nil, false, nil
	}
	s.version = set.Version
	for _, filter := range set.FilterSet {
		updates = append(updates, filter.ObjectSet...)
	}
	return updates, set.Truncated != nil && *set.Truncated, nil
}

// Read reads the whole inventory.
func (s *stream) Read(ctx context.Context) error {
	o, err := s.readAll(ctx)
	if err == nil {
		s.inv.replace(o)
	}
	return err
}

// readAll reads all objects.
func (s *stream) readAll(ctx context.Context) (*objectCache, error) {
	o := newObjectCache()
	s.version = ""
	for idle := 0; ; {
		updates, more, err := s.poll(ctx, min(firstPoll, s.pollTime))
		if err != nil {
			return nil, err
		}
		if s.apply(o, updates); slices.ContainsFunc(updates, isOfVM) {
			idle = 0
		} else {
			idle++
		}
		if err := o.checkSize(); err != nil {
			return nil, err
		}
		if err := s.addToView(ctx); err != nil {
			return nil, err
		}
		if !more && (len(updates) == 0 || len(o.vms) >= s.viewSize() || idle >= maxIdlePolls) {
			return o, nil
		}
	}
}

// isOfVM reports whether an update is about a VM.
func isOfVM(u types.ObjectUpdate) bool { return u.Obj.Type == "VirtualMachine" }

// viewSize returns the number of VMs in the second filter.
func (s *stream) viewSize() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.inView)
}

// Watch keeps the inventory up to date until it fails.
//
// Polls end with the context watching, and the requests that follow from
// updates end with ctx. A poll whose response is lost is repeated once:
// vCenter sends the same response again, unless the response was truncated. In
// that case the inventory is read again over the same session.
func (s *stream) Watch(ctx, watching context.Context) error {
	polling, stop := context.WithCancelCause(watching)
	var collecting sync.WaitGroup
	defer collecting.Wait()
	defer stop(nil)
	lost := false
	for {
		updates, _, err := s.poll(polling, s.pollTime)
		if err != nil && vcenter.IsAmbiguous(err) && polling.Err() == nil && !lost {
			lost = true
			continue
		}
		if cause := context.Cause(polling); cause != nil && watching.Err() == nil {
			return cause
		}
		if err != nil {
			return err
		}
		lost = false
		if len(updates) == 0 {
			continue
		}
		if err := s.store(updates); err != nil {
			return err
		}
		if err := s.readPartial(ctx, s.inv); err != nil {
			return err
		}
		if err := s.readInherited(ctx, s.inv); err != nil {
			return err
		}
		if s.startsCollecting() {
			collecting.Go(func() {
				if err := s.collect(ctx, polling); err != nil {
					stop(err)
				}
			})
		}
	}
}

// store stores updates in the inventory.
func (s *stream) store(updates []types.ObjectUpdate) (err error) {
	s.inv.update(func(o *objectCache) []uuid.UUID {
		touched := s.apply(o, updates)
		err = o.checkSize()
		for _, u := range updates {
			if u.Kind == types.ObjectUpdateKindLeave && u.Obj.Type == "Task" && o.tasks[u.Obj] == nil {
				s.inv.recheckTask(u.Obj)
			}
		}
		return touched
	})
	return err
}

// checkSize returns an error if vCenter reports more VMs than any vCenter has:
// a server that invents VMs must not fill the memory of the manager.
func (o *objectCache) checkSize() error {
	if len(o.ids) <= maxVMs {
		return nil
	}
	return fmt.Errorf("it reports more than %d VMs", maxVMs)
}

// startsCollecting reports whether there are VMs to collect and no goroutine
// collects them yet.
func (s *stream) startsCollecting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.toAdd) == 0 || s.collecting {
		return false
	}
	s.collecting = true
	return true
}

// collect adds the VMs that turn up within some time to the second filter. It
// returns at once if the polls end; those VMs are added when the objects are
// read next.
func (s *stream) collect(ctx, polling context.Context) error {
	timer := time.NewTimer(s.batchDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-polling.Done():
	}
	s.mu.Lock()
	s.collecting = false
	s.mu.Unlock()
	if polling.Err() != nil {
		return nil
	}
	return s.addToView(ctx)
}

// addToView adds VMs that turned up with a derived UUID to the second filter,
// with one request for all of them.
func (s *stream) addToView(ctx context.Context) error {
	req := s.viewChange()
	if len(req.Add) == 0 {
		return nil
	}
	res, err := methods.ModifyListView(ctx, s.client, req)
	if vcenter.IsAmbiguous(err) && ctx.Err() == nil {
		res, err = methods.ModifyListView(ctx, s.client, req) // adding a VM twice has no effect
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		for _, vm := range req.Add {
			delete(s.inView, vm)
			s.toAdd[vm] = true
		}
		return fmt.Errorf("adding VMs to the view: %w", err)
	}
	for _, vm := range res.Returnval {
		delete(s.inView, vm) // deleted meanwhile
	}
	return nil
}

// viewChange returns the request that adds new VMs to the second filter.
func (s *stream) viewChange() *types.ModifyListView {
	s.mu.Lock()
	defer s.mu.Unlock()
	req := &types.ModifyListView{This: s.list}
	if len(s.toAdd) == 0 {
		return req
	}
	req.Remove, s.toRemove = s.toRemove, nil
	for vm := range s.toAdd {
		req.Add = append(req.Add, vm)
		s.inView[vm] = true
	}
	clear(s.toAdd)
	return req
}

// apply stores updates in o and returns the UUIDs of the affected VMs.
func (s *stream) apply(o *objectCache, updates []types.ObjectUpdate) []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var touched []uuid.UUID
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
			delete(s.toAdd, u.Obj)
			if s.inView[u.Obj] {
				delete(s.inView, u.Obj)
				s.toRemove = append(s.toRemove, u.Obj)
			}
		default:
			before := o.ids[u.Obj]
			o.applyVM(u)
			id := o.ids[u.Obj]
			if id.Version() == spec.DerivedVersion && !s.inView[u.Obj] {
				s.toAdd[u.Obj] = true
			}
			touched = append(touched, before, id)
		}
	}
	return touched
}

// allUUIDs returns the UUIDs of all VMs that may be ours.
func (o *objectCache) allUUIDs() []uuid.UUID { return slices.Collect(maps.Keys(o.byID)) }

// removeVM removes a VM that left the inventory and returns its UUID.
func (o *objectCache) removeVM(vm ref) uuid.UUID {
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
func (o *objectCache) markRead(vm ref) {
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
func (o *objectCache) identify(vm ref, value any) {
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
func (o *objectCache) assignUUID(vm ref, id uuid.UUID) {
	o.ids[vm] = id
	if other, taken := o.byID[id]; taken && other != vm {
		o.copies[id] = append(o.copies[id], other)
	}
	o.byID[id] = vm
}

// unassignUUID records that vm does not have the UUID id any more.
func (o *objectCache) unassignUUID(vm ref, id uuid.UUID) {
	rest := slices.DeleteFunc(o.copies[id], func(other ref) bool { return other == vm })
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
			task.entity, _ = c.Val.(ref)
		case "info.descriptionId":
			task.description, _ = c.Val.(string)
		}
	}
}
