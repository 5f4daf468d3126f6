package vcenter

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
)

// maxObjectUpdates is vCenter's limit of one answer.
const maxObjectUpdates = 100

type ref = types.ManagedObjectReference

// watch receives every change of the inventory and manages the property
// collectors. A collector does not collect the changes themselves: it records
// the objects that must be compared again.
type watch struct {
	mo.ExtensibleManagedObject
	s *Server

	mu         sync.Mutex
	next       int
	collectors map[string]*collector // by session and reference

	inbox
	// delay is how late updates are: an answer has the state of the inventory when
	// the change was found, and is sent so much later.
	delay time.Duration
}

// inbox contains the changes of the inventory that have not been passed on to
// the filters. The sender holds locks of objects, and the comparison takes
// those locks while it holds watch.mu, so the inbox has its own lock, under
// which no other lock is taken.
type inbox struct {
	mu sync.Mutex
	// objects have changed; everything means that any may have.
	objects    map[ref]bool
	everything bool
	// wakes are those of the collectors.
	wakes map[chan struct{}]bool
}

// collector is one client's property collector.
type collector struct {
	session string
	self    ref

	// The rest is covered by watch.mu.
	filters []*filter
	version int
	// previous answered the request that carried version-1.
	previous *types.UpdateSet
	wake     chan struct{}
	// stop ends the poll under way, with the fault that it returns; polls
	// numbers it.
	stop   func(types.BaseMethodFault)
	polls  int
	closed types.BaseMethodFault
}

type filter struct {
	s    *Server
	self ref
	spec types.PropertyFilterSpec
	// sent is the state that the client has received.
	sent map[ref]map[string]any
	// roots are the objects the filter starts from.
	roots map[ref]bool
	// all requests a comparison of the whole filter, dirty a comparison of single
	// objects.
	all   bool
	dirty map[ref]bool
}

func newWatch(s *Server) *watch {
	w := &watch{s: s, collectors: map[string]*collector{}}
	w.objects, w.wakes = map[ref]bool{}, map[chan struct{}]bool{}
	w.Self = ref{Type: "NovaWatch", Value: "NovaWatch"}
	return w
}

// PutObject notes a new object.
func (w *watch) PutObject(_ *simulator.Context, obj mo.Reference) {
	if obj.Reference().Type != "Task" { // seen through the lists that name it
		w.touchAll()
	}
}

// UpdateObject notes a changed object.
func (w *watch) UpdateObject(_ *simulator.Context, obj mo.Reference, _ []types.PropertyChange) {
	w.touch(obj.Reference())
}

// RemoveObject notes that an object went.
func (w *watch) RemoveObject(_ *simulator.Context, obj ref) {
	if obj.Type != "Task" {
		w.touchAll()
	}
}

// touch has an object looked at again.
func (w *watch) touch(obj ref) {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.objects[obj] = true
	w.wake()
}

// touchAll has everything looked at again.
func (w *watch) touchAll() {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.everything = true
	w.wake()
}

// wake has every collector look. The caller holds the inbox's lock.
func (i *inbox) wake() {
	for wake := range i.wakes {
		signal(wake)
	}
}

// empty returns and removes the recorded changes.
func (i *inbox) empty() (objects map[ref]bool, everything bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	objects, everything = i.objects, i.everything
	i.objects, i.everything = map[ref]bool{}, false
	return objects, everything
}

// enlist has a collector woken from now on, or no more.
func (i *inbox) enlist(wake chan struct{}, on bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if on {
		i.wakes[wake] = true
	} else {
		delete(i.wakes, wake)
	}
}

// passOn passes the recorded changes on to the filters. The caller holds mu.
func (w *watch) passOn() {
	objects, everything := w.empty()
	for _, c := range w.collectors {
		for _, f := range c.filters {
			if f.note(objects, everything) {
				signal(c.wake)
			}
		}
	}
}

// note notes which objects to look at again. It reports whether there are any.
func (f *filter) note(objects map[ref]bool, everything bool) bool {
	f.all = f.all || everything
	for obj := range objects {
		leaf := obj.Type == "Task" || obj.Type == "VirtualMachine"
		switch _, known := f.sent[obj]; {
		case f.roots[obj] || !known && !leaf:
			f.all = true
		case known:
			f.dirty[obj] = true
		}
	}
	return f.all || len(f.dirty) > 0
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// endSession ends a session's collectors and the polls under way on them.
func (w *watch) endSession(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, c := range w.collectors {
		if c.session == session {
			c.close(&types.NotAuthenticated{NoPermission: types.NoPermission{Object: &c.self, PrivilegeId: "System.View"}})
			w.enlist(c.wake, false)
			delete(w.collectors, key)
		}
	}
}

func (c *collector) close(fault types.BaseMethodFault) {
	c.closed = fault
	if c.stop != nil {
		c.stop(fault)
	}
}

func (w *watch) name(kind, session string) ref {
	w.next++
	return ref{Type: kind, Value: "session[" + session + "]" + strconv.Itoa(w.next)}
}

// collectorOf finds a collector of the session; its default one is made when
// it is first used. The caller holds mu.
func (w *watch) collectorOf(ctx *simulator.Context, self ref) *collector {
	key := ctx.Session.Key + "/" + self.Value
	if c := w.collectors[key]; c != nil {
		return c
	}
	content := ctx.Map.Get(serviceInstance).(*simulator.ServiceInstance).Content
	if self != content.PropertyCollector {
		return nil
	}
	return w.add(ctx, self)
}

func (w *watch) add(ctx *simulator.Context, self ref) *collector {
	c := &collector{session: ctx.Session.Key, self: self, wake: make(chan struct{}, 1)}
	w.collectors[ctx.Session.Key+"/"+self.Value] = c
	w.enlist(c.wake, true)
	return c
}

// CreatePropertyCollector makes a collector.
func (o *operations) CreatePropertyCollector(ctx *simulator.Context, _ *types.CreatePropertyCollector) soap.HasFault {
	w := o.s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.add(ctx, w.name("PropertyCollector", ctx.Session.Key))
	return &methods.CreatePropertyCollectorBody{Res: &types.CreatePropertyCollectorResponse{Returnval: c.self}}
}

// DestroyPropertyCollector ends a collector and the poll under way on it.
func (o *operations) DestroyPropertyCollector(ctx *simulator.Context, req *types.DestroyPropertyCollector) soap.HasFault {
	w := o.s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.collectorOf(ctx, req.This)
	if c == nil {
		return &methods.DestroyPropertyCollectorBody{Fault_: soapFault(notFound(req.This))}
	}
	c.close(&types.RequestCanceled{})
	w.enlist(c.wake, false)
	delete(w.collectors, c.session+"/"+c.self.Value)
	return &methods.DestroyPropertyCollectorBody{Res: &types.DestroyPropertyCollectorResponse{}}
}

// CreateFilter adds a filter to a collector.
func (o *operations) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	body := &methods.CreateFilterBody{}
	f := &filter{s: o.s, spec: req.Spec, sent: map[ref]map[string]any{}, roots: map[ref]bool{}, dirty: map[ref]bool{}, all: true}
	for _, set := range req.Spec.ObjectSet {
		if ctx.Session.Get(set.Obj) == nil {
			body.Fault_ = soapFault(notFound(set.Obj))
			return body
		}
		f.roots[set.Obj] = true
	}
	// Objects may go while they are watched; that is an update, not a fault.
	f.spec.ReportMissingObjectsInResults = types.NewBool(true)

	w := o.s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.collectorOf(ctx, req.This)
	if c == nil {
		body.Fault_ = soapFault(notFound(req.This))
		return body
	}
	f.self = w.name("PropertyFilter", ctx.Session.Key)
	c.filters = append(c.filters, f)
	signal(c.wake)
	body.Res = &types.CreateFilterResponse{Returnval: f.self}
	return body
}

// DestroyPropertyFilter takes a filter off its collector.
func (o *operations) DestroyPropertyFilter(ctx *simulator.Context, req *types.DestroyPropertyFilter) soap.HasFault {
	w := o.s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.collectors {
		if c.session != ctx.Session.Key {
			continue
		}
		for i, f := range c.filters {
			if f.self == req.This {
				c.filters = append(c.filters[:i:i], c.filters[i+1:]...)
				return &methods.DestroyPropertyFilterBody{Res: &types.DestroyPropertyFilterResponse{}}
			}
		}
	}
	return &methods.DestroyPropertyFilterBody{Fault_: soapFault(notFound(req.This))}
}

// CancelWaitForUpdates ends the poll under way.
func (o *operations) CancelWaitForUpdates(ctx *simulator.Context, req *types.CancelWaitForUpdates) soap.HasFault {
	w := o.s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.collectorOf(ctx, req.This); c != nil && c.stop != nil {
		c.stop(&types.RequestCanceled{})
	}
	return &methods.CancelWaitForUpdatesBody{Res: &types.CancelWaitForUpdatesResponse{}}
}

// WaitForUpdatesEx responds as soon as an object that the client watches
// differs from the state that was sent. A repeated version gets the same
// response again, so a lost response can be repeated. It ends when the client
// disconnects.
func (o *operations) WaitForUpdatesEx(ctx *simulator.Context, req *types.WaitForUpdatesEx) soap.HasFault {
	body := &methods.WaitForUpdatesExBody{}
	wait, stop := context.WithCancelCause(o.s.requestContext(ctx))
	defer stop(nil)

	w := o.s.watch
	c, poll, again, fault := w.begin(ctx, req, func(f types.BaseMethodFault) { stop(canceled{f}) })
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.WaitForUpdatesExResponse{Returnval: again}
	if again != nil {
		return body
	}

	limit, seconds := limits(req.Options)
	once := seconds != nil && *seconds == 0
	var timeout <-chan time.Time
	if seconds != nil {
		timer := time.NewTimer(time.Duration(*seconds) * time.Second)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		if body.Res.Returnval, fault = w.look(ctx, c, poll, limit, req.Version == ""); fault != nil {
			return &methods.WaitForUpdatesExBody{Fault_: soapFault(fault)}
		}
		if body.Res.Returnval != nil && req.Version != "" {
			if sleep(wait, w.delay); wait.Err() != nil {
				return &methods.WaitForUpdatesExBody{Fault_: soapFault(cancelFault(wait))}
			}
		}
		if body.Res.Returnval != nil || once {
			return body
		}
		select {
		case <-c.wake:
			// Concurrent changes are compared once and sent together.
			sleep(wait, together)
		case <-timeout:
			return body
		case <-wait.Done():
			return &methods.WaitForUpdatesExBody{Fault_: soapFault(cancelFault(wait))}
		}
	}
}

// limits returns how many objects a response may have, and how many seconds the
// request waits, or nil if it waits until there is an update.
func limits(options *types.WaitOptions) (objects int, seconds *int32) {
	if options == nil {
		return maxObjectUpdates, nil
	}
	if n := int(options.MaxObjectUpdates); n > 0 && n < maxObjectUpdates {
		return n, options.MaxWaitSeconds
	}
	return maxObjectUpdates, options.MaxWaitSeconds
}

// together is how long changes are collected for one answer.
const together = 10 * time.Millisecond

// settle lets time pass unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

type canceled struct{ fault types.BaseMethodFault }

func (c canceled) Error() string { return localize(c.fault) }

func cancelFault(ctx context.Context) types.BaseMethodFault {
	if c, ok := errors.AsType[canceled](context.Cause(ctx)); ok {
		return c.fault
	}
	return &types.RequestCanceled{}
}

// begin reads the version of a poll: no version starts over, the last version
// continues, and the version before it gets the same response again. A poll in
// progress is ended.
func (w *watch) begin(
	ctx *simulator.Context, req *types.WaitForUpdatesEx, stop func(types.BaseMethodFault),
) (c *collector, poll int, again *types.UpdateSet, fault types.BaseMethodFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c = w.collectorOf(ctx, req.This); c == nil {
		return nil, 0, nil, notFound(req.This)
	}
	if c.stop != nil {
		c.stop(&types.RequestCanceled{})
	}
	c.stop = stop
	c.polls++
	switch req.Version {
	case "":
		for _, f := range c.filters {
			f.all = true
			clear(f.sent)
		}
	case strconv.Itoa(c.version):
	case strconv.Itoa(c.version - 1):
		// An answer that was truncated is not repeated.
		if c.previous != nil && !ptr.Deref(c.previous.Truncated, false) {
			return c, c.polls, c.previous, nil
		}
		return nil, 0, nil, &types.InvalidCollectorVersion{}
	default:
		return nil, 0, nil, &types.InvalidCollectorVersion{}
	}
	return c, c.polls, nil, nil
}

// look compares and returns the differences, or nil. The first response to a
// client may be empty, because it contains the version from which to continue.
func (w *watch) look(
	ctx *simulator.Context, c *collector, poll, limit int, first bool,
) (*types.UpdateSet, types.BaseMethodFault) {
	w.s.world.Lock()
	defer w.s.world.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passOn()
	if c.closed != nil {
		return nil, c.closed
	}
	if c.polls != poll {
		return nil, &types.RequestCanceled{} // a later poll returns the changes
	}
	set := &types.UpdateSet{}
	left := limit
	for _, f := range c.filters {
		updates, fault := f.look(ctx, left)
		if fault != nil {
			return nil, fault
		}
		if len(updates) > 0 {
			set.FilterSet = append(set.FilterSet, types.PropertyFilterUpdate{Filter: f.self, ObjectSet: updates})
		}
		if left -= len(updates); left <= 0 {
			set.Truncated = types.NewBool(true)
			break
		}
	}
	if len(set.FilterSet) == 0 && !first {
		return nil, nil
	}
	c.version++
	set.Version = strconv.Itoa(c.version)
	c.previous = set
	return set, nil
}

// look returns up to limit updates of one filter and records them as sent. The
// next call finds the remaining updates.
func (f *filter) look(ctx *simulator.Context, limit int) ([]types.ObjectUpdate, types.BaseMethodFault) {
	all, spec := f.all, f.spec
	if !all {
		spec.ObjectSet = nil
		for obj := range f.dirty {
			spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: obj})
		}
		if len(spec.ObjectSet) == 0 {
			return nil, nil
		}
	}
	f.all = false
	clear(f.dirty)
	objects, fault := retrieve(ctx, spec)
	objects = f.s.seen(ctx, objects)
	if fault != nil {
		f.all = true
		return nil, fault
	}
	var updates []types.ObjectUpdate
	present := map[ref]bool{}
	for _, object := range objects {
		present[object.Obj] = true
		update, values := f.compare(object)
		if update == nil {
			continue
		}
		if len(updates) == limit {
			f.all = true
			return updates, nil
		}
		updates = append(updates, *update)
		f.sent[object.Obj] = values
	}
	for obj := range f.sent {
		if present[obj] || !all {
			continue
		}
		if len(updates) == limit {
			f.all = true
			return updates, nil
		}
		updates = append(updates, types.ObjectUpdate{Kind: types.ObjectUpdateKindLeave, Obj: obj})
		delete(f.sent, obj)
	}
	return updates, nil
}

// compare returns the difference between an object and its sent state, if there
// is one.
func (f *filter) compare(object types.ObjectContent) (*types.ObjectUpdate, map[string]any) {
	values := make(map[string]any, len(object.PropSet))
	for _, property := range object.PropSet {
		values[property.Name] = property.Val
	}
	before, known := f.sent[object.Obj]
	update := &types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: object.Obj}
	if !known {
		update.Kind = types.ObjectUpdateKindEnter
		update.MissingSet = object.MissingSet
	}
	for _, property := range object.PropSet {
		if old, ok := before[property.Name]; !ok || !reflect.DeepEqual(old, property.Val) {
			update.ChangeSet = append(update.ChangeSet, types.PropertyChange{
				Name: property.Name, Op: types.PropertyChangeOpAssign, Val: property.Val,
			})
		}
	}
	for name := range before {
		if _, ok := values[name]; !ok {
			update.ChangeSet = append(update.ChangeSet, types.PropertyChange{Name: name, Op: types.PropertyChangeOpAssign})
		}
	}
	if known && len(update.ChangeSet) == 0 {
		return nil, nil
	}
	return update, values
}

// retrieve reads objects as the simulator's own collector does; it hands out
// copies.
func retrieve(ctx *simulator.Context, spec types.PropertyFilterSpec) ([]types.ObjectContent, types.BaseMethodFault) {
	reader := &simulator.PropertyCollector{}
	copied := *ctx // the simulator's locks belong to contexts
	res := reader.RetrievePropertiesEx(&copied, &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{spec}})
	if fault := res.Fault(); fault != nil {
		method, ok := fault.VimFault().(types.BaseMethodFault)
		if !ok {
			method = &types.SystemErrorFault{Reason: fault.String}
		}
		return nil, method
	}
	return res.(*methods.RetrievePropertiesExBody).Res.Returnval.Objects, nil
}
