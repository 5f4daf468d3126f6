package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
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
		"config.hardware.numCPU", "config.hardware.numCoresPerSocket", "config.hardware.memoryMB",
		"config.cpuHotAddEnabled", "config.memoryHotAddEnabled", "config.hotPlugMemoryLimit", "config.hotPlugMemoryIncrementSize", "config.hardware.device",
		"guest.net", "guest.hostName", "guest.toolsRunningStatus", zoneProperty, machineProperty, userDataProperty, ignitionProperty, userDataMarkerProperty, reportProperty,
	}
	hostProperties    = []string{"name", "parent"}
	clusterProperties = []string{SettingsProperty, usableProperty}
	// Tasks of all users are streamed. Their results and errors can be large,
	// and are read for tasks of ours only.
	taskProperties = []string{"info.state", "info.entity", "info.descriptionId"}
)

// Properties of a compute cluster: its settings, and the number of its hosts
// that can run VMs.
const (
	SettingsProperty = "configurationEx"
	usableProperty   = "summary.numEffectiveHosts"
)

// maxIdlePolls is the number of responses without a VM that end the first read.
// On a busy vCenter each response has tasks, and vCenter may never report a VM.
const maxIdlePolls = 5

// firstPoll is the longest time for a poll while the objects are read.
const firstPoll = 5 * time.Second

// Stream is a property collector with two filters: one for the UUIDs of all
// VMs and for recent tasks, the other for the VMs whose UUID is derived.
type Stream struct {
	client    *vim25.Client
	store     Store
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

// maxUpdates limits the objects in one response of the property collector. A VM with 60
// disks has devices of 60 KB.
const maxUpdates = 250

// Store has the objects that a stream reads, under a lock.
type Store interface {
	// Replace replaces all objects.
	Replace(*Objects)
	// Update calls change, which returns the UUIDs of the VMs that it changed.
	Update(change func(*Objects) (touched []uuid.UUID))
	// View calls read, which changes nothing that machines depend on.
	View(read func(*Objects))
	// UnreadTasks returns tasks that have ended and whose result the store needs:
	// the stream does not report it.
	UnreadTasks() []ref
}

// Open creates the collector. vCenter deletes it with the session.
func Open(ctx context.Context, c *vim25.Client, to Store, p vcenter.Timeouts, onResponse func()) (*Stream, error) {
	s := &Stream{client: c, store: to, pollTime: p.Poll, batchDelay: p.BatchDelay, onResponse: onResponse, inView: map[ref]bool{}, toAdd: map[ref]bool{}}
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

func (s *Stream) filter(ctx context.Context, spec types.PropertyFilterSpec) error {
	_, err := methods.CreateFilter(ctx, s.client, &types.CreateFilter{This: s.collector, Spec: spec})
	if err != nil {
		return fmt.Errorf("creating filter: %w", err)
	}
	return nil
}

// poll waits for updates; it returns none if vCenter had none for some time.
func (s *Stream) poll(ctx context.Context, wait time.Duration) (updates []types.ObjectUpdate, more bool, err error) {
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
func (s *Stream) Read(ctx context.Context) error {
	o, err := s.readAll(ctx)
	if err == nil {
		s.store.Replace(o)
	}
	return err
}

// readAll reads all objects.
func (s *Stream) readAll(ctx context.Context) (*Objects, error) {
	o := NewObjects()
	s.version = ""
	for idle := 0; ; {
		updates, more, err := s.poll(ctx, min(firstPoll, s.pollTime))
		if err != nil {
			return nil, err
		}
		o.Apply(updates)
		if s.selectNew(o, updates); slices.ContainsFunc(updates, isOfVM) {
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
		if !more && (len(updates) == 0 || len(o.VMs) >= s.viewSize() || idle >= maxIdlePolls) {
			return o, nil
		}
	}
}

// isOfVM reports whether an update is about a VM.
func isOfVM(u types.ObjectUpdate) bool { return u.Obj.Type == "VirtualMachine" }

// viewSize returns the number of VMs in the second filter.
func (s *Stream) viewSize() int {
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
func (s *Stream) Watch(ctx, watching context.Context) error {
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
		if err := s.apply(updates); err != nil {
			return err
		}
		if err := s.readPartial(ctx); err != nil {
			return err
		}
		if err := s.readTasks(ctx); err != nil {
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

// apply stores updates.
func (s *Stream) apply(updates []types.ObjectUpdate) (err error) {
	s.store.Update(func(o *Objects) []uuid.UUID {
		touched := o.Apply(updates)
		s.selectNew(o, updates)
		err = o.checkSize()
		return touched
	})
	return err
}

// startsCollecting reports whether there are VMs to collect and no goroutine
// collects them yet.
func (s *Stream) startsCollecting() bool {
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
func (s *Stream) collect(ctx, polling context.Context) error {
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
func (s *Stream) addToView(ctx context.Context) error {
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
func (s *Stream) viewChange() *types.ModifyListView {
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

// selectNew selects the VMs with a derived UUID among updates for the second
// filter, and deselects VMs that left.
func (s *Stream) selectNew(o *Objects, updates []types.ObjectUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range updates {
		switch {
		case !isOfVM(u):
		case u.Kind == types.ObjectUpdateKindLeave:
			delete(s.toAdd, u.Obj)
			if s.inView[u.Obj] {
				delete(s.inView, u.Obj)
				s.toRemove = append(s.toRemove, u.Obj)
			}
		case o.IDs[u.Obj].Version() == spec.DerivedVersion && !s.inView[u.Obj]:
			s.toAdd[u.Obj] = true
		}
	}
}

// readPartial reads the settings of compute clusters of which vCenter reported
// only a part. Settings that cannot be read now are read before they are
// changed.
func (s *Stream) readPartial(ctx context.Context) error {
	var clusters []ref
	s.store.View(func(o *Objects) { clusters = o.takePartial() })
	for _, at := range clusters {
		if err := ReadCluster(ctx, s.client, s.store, at); err != nil && vcenter.IsAmbiguous(err) {
			return err
		}
	}
	return nil
}

// ReadCluster reads the settings of a compute cluster.
func ReadCluster(ctx context.Context, c *vim25.Client, to Store, at ref) error {
	var cluster mo.ClusterComputeResource
	if err := object.NewCommon(c, at).Properties(ctx, at, []string{SettingsProperty}, &cluster); err != nil {
		return fmt.Errorf("reading the compute cluster's rules: %w", err)
	}
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return nil
	}
	to.Update(func(o *Objects) []uuid.UUID {
		o.Clusters[at] = NewComputeCluster(config)
		return o.allUUIDs()
	})
	return nil
}

// readTasks reads the results of tasks that the store needs.
func (s *Stream) readTasks(ctx context.Context) error {
	for _, task := range s.store.UnreadTasks() {
		info, err := ReadTask(ctx, s.client, task)
		switch {
		case err == nil:
			s.store.Update(func(o *Objects) []uuid.UUID {
				o.Tasks[task] = info
				return nil
			})
		case vcenter.IsAmbiguous(err):
			return err
		default: // the task was deleted, or the account cannot read it
			s.store.Update(func(o *Objects) []uuid.UUID {
				delete(o.Tasks, task)
				return nil
			})
		}
	}
	return nil
}
