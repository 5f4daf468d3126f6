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
)

// Properties that are streamed. Of VMs that are not ours only the UUID and the
// name are, so that ten thousand of them are as quiet as none.
var (
	idProperties = []string{"config.instanceUuid", "name"}
	vmProperties = []string{
		"config.uuid", "config.version", "runtime.powerState", "runtime.connectionState", "runtime.host", "runtime.question", "customValue",
		"guest.net", "guest.hostName", "guest.toolsRunningStatus", zoneProperty, machineProperty, userDataProperty, ignitionProperty, unscrubbedProperty, reportProperty,
	}
	hostProperties    = []string{"name", "parent"}
	clusterProperties = []string{settingsProperty, usableProperty}
	// Tasks of all users are streamed. Their results and errors can be large, and are
	// read for tasks of ours only.
	taskProperties = []string{"info.state", "info.entity", "info.descriptionId"}
)

// Properties of a compute cluster: its settings, and how many of its hosts can
// run VMs.
const (
	settingsProperty = "configurationEx"
	usableProperty   = "summary.numEffectiveHosts"
)

// maxIdle is how many answers without a VM end the first reading. On a busy
// vCenter there are tasks in each answer, and a VM may never be reported.
const maxIdle = 5

// firstPoll is how long a poll may take while the world is learnt.
const firstPoll = 5 * time.Second

// stream is a property collector with two filters: one on the UUIDs of all
// VMs and on recent tasks, the other on the VMs whose UUID is derived.
type stream struct {
	client    *vim25.Client
	collector ref
	list      ref
	version   string
	// pollTime is how long a poll waits for news, and heard is called after each.
	pollTime time.Duration
	heard    func()
	// gather is how long VMs that turn up are collected before they are put
	// into the second filter together.
	gather time.Duration

	mu sync.Mutex
	// listed are the VMs in the second filter, and unlisted those that are
	// about to be; left are destroyed ones, dropped from it at the next chance.
	listed, unlisted map[ref]bool
	left             []ref
	// gathering is set while somebody collects.
	gathering bool
}

const (
	// maxUpdates bounds the objects in one answer of the property collector.
	maxUpdates = 500
	// maxVMs bounds the VMs of one vCenter. vCenter 8 supports 45,000.
	maxVMs = 100_000
)

// openStream sets the collector up. vCenter forgets it with the session.
func openStream(ctx context.Context, c *vim25.Client, p pace, heard func()) (*stream, error) {
	s := &stream{client: c, pollTime: p.poll, gather: p.gather, heard: heard, listed: map[ref]bool{}, unlisted: map[ref]bool{}}
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
			members(all.Returnval, "ContainerView", "view"),
			members(*c.ServiceContent.TaskManager, "TaskManager", "recentTask"),
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
		ObjectSet: []types.ObjectSpec{members(s.list, "ListView", "view",
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

// members selects what the property path of an object lists, not the object,
// and what further paths lead to from there.
func members(of ref, kind, path string, further ...types.BaseSelectionSpec) types.ObjectSpec {
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

// poll waits for news; none come if vCenter had none for a while.
func (s *stream) poll(ctx context.Context, wait time.Duration) (updates []types.ObjectUpdate, more bool, err error) {
	seconds := int32(wait / time.Second)
	res, err := methods.WaitForUpdatesEx(ctx, s.client, &types.WaitForUpdatesEx{
		This: s.collector, Version: s.version, Options: &types.WaitOptions{MaxWaitSeconds: &seconds, MaxObjectUpdates: maxUpdates},
	})
	if err != nil {
		return nil, false, fmt.Errorf("waiting for updates: %w", err)
	}
	s.heard()
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

// learn reads the world from the start.
func (s *stream) learn(ctx context.Context) (*world, error) {
	w := newWorld()
	s.version = ""
	for idle := 0; ; {
		updates, more, err := s.poll(ctx, min(firstPoll, s.pollTime))
		if err != nil {
			return nil, err
		}
		if s.apply(w, updates); slices.ContainsFunc(updates, isOfVM) {
			idle = 0
		} else {
			idle++
		}
		if err := w.bounded(); err != nil {
			return nil, err
		}
		if err := s.enlist(ctx); err != nil {
			return nil, err
		}
		if !more && (len(updates) == 0 || len(w.vms) >= s.enlisted() || idle >= maxIdle) {
			return w, nil
		}
	}
}

// isOfVM reports whether an update is about a VM.
func isOfVM(u types.ObjectUpdate) bool { return u.Obj.Type == "VirtualMachine" }

// enlisted is how many VMs are in the second filter.
func (s *stream) enlisted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listed)
}

// follow keeps the inventory up to date until it fails.
//
// Polls end with following, what they lead to with ctx. A poll whose answer is
// lost is repeated once: vCenter gives the same answer again, unless it was
// truncated. The inventory is then read again over the same session.
func (s *stream) follow(ctx, following context.Context, inv *inventory) error {
	polling, stop := context.WithCancelCause(following)
	var gathering sync.WaitGroup
	defer gathering.Wait()
	defer stop(nil)
	lost := false
	for {
		updates, _, err := s.poll(polling, s.pollTime)
		if err != nil && isAmbiguous(err) && polling.Err() == nil && !lost {
			lost = true
			continue
		}
		if cause := context.Cause(polling); cause != nil && following.Err() == nil {
			return cause
		}
		if err != nil {
			return err
		}
		lost = false
		if len(updates) == 0 {
			continue
		}
		if err := s.pass(inv, updates); err != nil {
			return err
		}
		if err := s.complete(ctx, inv); err != nil {
			return err
		}
		if err := s.readInherited(ctx, inv); err != nil {
			return err
		}
		if s.begins() {
			gathering.Go(func() {
				if err := s.collect(ctx, polling); err != nil {
					stop(err)
				}
			})
		}
	}
}

// pass brings what was told to the inventory.
func (s *stream) pass(inv *inventory, updates []types.ObjectUpdate) (err error) {
	inv.update(func(w *world) []uuid.UUID {
		touched := s.apply(w, updates)
		err = w.bounded()
		for _, u := range updates {
			if u.Kind == types.ObjectUpdateKindLeave && u.Obj.Type == "Task" && w.tasks[u.Obj] == nil {
				inv.doubt(u.Obj)
			}
		}
		return touched
	})
	return err
}

// bounded returns an error if vCenter reports more VMs than any vCenter has: a
// server that invents VMs must not fill the memory of the manager.
func (w *world) bounded() error {
	if len(w.ids) <= maxVMs {
		return nil
	}
	return fmt.Errorf("it reports more than %d VMs", maxVMs)
}

// begins reports whether there are VMs to collect and nobody does so yet.
func (s *stream) begins() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unlisted) == 0 || s.gathering {
		return false
	}
	s.gathering = true
	return true
}

// collect puts the VMs that turn up within a while into the second filter. It
// is left at once if the polls end; those VMs are enlisted when the world is
// learnt next.
func (s *stream) collect(ctx, polling context.Context) error {
	timer := time.NewTimer(s.gather)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-polling.Done():
	}
	s.mu.Lock()
	s.gathering = false
	s.mu.Unlock()
	if polling.Err() != nil {
		return nil
	}
	return s.enlist(ctx)
}

// enlist puts VMs that turned up with a derived UUID into the second filter:
// one request for all that turned up together.
func (s *stream) enlist(ctx context.Context) error {
	req := s.enlistment()
	if len(req.Add) == 0 {
		return nil
	}
	res, err := methods.ModifyListView(ctx, s.client, req)
	if isAmbiguous(err) && ctx.Err() == nil {
		res, err = methods.ModifyListView(ctx, s.client, req) // to add twice is to add once
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		for _, vm := range req.Add {
			delete(s.listed, vm)
			s.unlisted[vm] = true
		}
		return fmt.Errorf("adding VMs to the view: %w", err)
	}
	for _, vm := range res.Returnval {
		delete(s.listed, vm) // gone meanwhile
	}
	return nil
}

// enlistment takes what is to be put into the second filter by now.
func (s *stream) enlistment() *types.ModifyListView {
	s.mu.Lock()
	defer s.mu.Unlock()
	req := &types.ModifyListView{This: s.list}
	if len(s.unlisted) == 0 {
		return req
	}
	req.Remove, s.left = s.left, nil
	for vm := range s.unlisted {
		req.Add = append(req.Add, vm)
		s.listed[vm] = true
	}
	clear(s.unlisted)
	return req
}

// apply puts updates into w and returns the UUIDs of the VMs they touch.
func (s *stream) apply(w *world, updates []types.ObjectUpdate) []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var touched []uuid.UUID
	for _, u := range updates {
		switch {
		case u.Obj.Type == "Task":
			w.applyTask(u)
		case u.Obj.Type == "HostSystem":
			w.applyHost(u)
			touched = append(touched, w.all()...)
		case u.Obj.Type == "ClusterComputeResource":
			w.applyCluster(u)
			touched = append(touched, w.all()...)
		case u.Kind == types.ObjectUpdateKindLeave:
			touched = append(touched, w.drop(u.Obj))
			delete(s.unlisted, u.Obj)
			if s.listed[u.Obj] {
				delete(s.listed, u.Obj)
				s.left = append(s.left, u.Obj)
			}
		default:
			before := w.ids[u.Obj]
			w.applyVM(u)
			id := w.ids[u.Obj]
			if id.Version() == derived && !s.listed[u.Obj] {
				s.unlisted[u.Obj] = true
			}
			touched = append(touched, before, id)
		}
	}
	return touched
}

// all returns the UUIDs of all VMs that may be ours.
func (w *world) all() []uuid.UUID { return slices.Collect(maps.Keys(w.byID)) }

// drop forgets a VM that left and returns the UUID it had.
func (w *world) drop(vm ref) uuid.UUID {
	id := w.ids[vm]
	w.part(vm, id)
	delete(w.ids, vm)
	delete(w.vms, vm)
	delete(w.unread, vm)
	delete(w.names, vm)
	return id
}

// applyVM takes over what changed of a VM, from either filter.
func (w *world) applyVM(u types.ObjectUpdate) {
	if _, known := w.ids[u.Obj]; !known {
		w.ids[u.Obj] = uuid.Nil
	}
	for _, c := range u.ChangeSet {
		switch c.Name {
		case "config.instanceUuid":
			w.identify(u.Obj, c.Val)
			continue
		case "name":
			w.unread[u.Obj], _ = c.Val.(string)
			continue
		}
		info := w.vms[u.Obj]
		if info == nil {
			info = &vmInfo{}
			w.vms[u.Obj] = info
		}
		info.apply(c.Name, c.Val)
	}
	w.read(u.Obj)
}

// read notes that a VM's UUID is known, if it is. Its name is kept if the VM may
// be ours.
func (w *world) read(vm ref) {
	if w.ids[vm] == uuid.Nil {
		return
	}
	if name, ok := w.unread[vm]; ok && w.ids[vm].Version() == derived {
		w.names[vm] = name
	}
	delete(w.unread, vm)
}

// identify notes a VM's instance UUID. One that vCenter had and cannot read
// now, because the VM's host or datastore is out of reach, is still the VM's.
func (w *world) identify(vm ref, value any) {
	text, _ := value.(string)
	id, err := uuid.Parse(text)
	if err != nil {
		return
	}
	w.part(vm, w.ids[vm])
	w.join(vm, id)
}

// join notes that vm has the UUID id. That another has it too does not happen
// in one vCenter, unless somebody wrote it into a copy.
func (w *world) join(vm ref, id uuid.UUID) {
	w.ids[vm] = id
	if other, taken := w.byID[id]; taken && other != vm {
		w.copies[id] = append(w.copies[id], other)
	}
	w.byID[id] = vm
}

// part notes that vm has the UUID id no more.
func (w *world) part(vm ref, id uuid.UUID) {
	rest := slices.DeleteFunc(w.copies[id], func(other ref) bool { return other == vm })
	if w.byID[id] == vm {
		delete(w.byID, id)
		if len(rest) > 0 {
			w.byID[id], rest = rest[0], rest[1:]
		}
	}
	if len(rest) == 0 {
		delete(w.copies, id)
	} else {
		w.copies[id] = rest
	}
}

// inherit keeps the UUIDs that an earlier world had and w could not read.
func (w *world) inherit(from *world) {
	for vm, id := range w.ids {
		if old := from.ids[vm]; id == uuid.Nil && old != uuid.Nil {
			w.join(vm, old)
			w.read(vm)
		}
	}
}

// unreadable reports whether there is a VM called name of which nobody can say
// whose it is. vCenter may show such a VM under the path of its file.
func (w *world) unreadable(name string) bool {
	for _, n := range w.unread {
		if n == name || strings.TrimSuffix(path.Base(n), ".vmx") == name {
			return true
		}
	}
	return false
}

// applyTask takes over what changed of a task. One that ended leaves the list
// minutes later.
func (w *world) applyTask(u types.ObjectUpdate) {
	task := w.tasks[u.Obj]
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(w.tasks, u.Obj)
		return
	}
	if task == nil {
		task = &taskInfo{}
		w.tasks[u.Obj] = task
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
