package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fairqueue"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// farewell is how long an engine has to take a token back.
const farewell = 2 * time.Second

// Verbs whose outcome is known later only.
const (
	Creating = "create"
	Starting = "start"
	Removing = "remove"
)

// Pace is how long what takes.
type Pace struct {
	Session sessions.Timeouts
	Watch   ovirt.Pace
	// Stop is how long a VM may take to stop before its power is taken away
	// again.
	Stop time.Duration
}

// Usually is the pace outside of tests.
var Usually = Pace{Session: sessions.DefaultTimeouts, Watch: ovirt.Usually, Stop: 30 * time.Second}

// Session is one account at one engine, with what it shows of our VMs.
type Session struct {
	*sessions.Session

	Mirror *ovirt.Mirror
	Turns  *sessions.CreationQueue
	// Grouping lets one machine at a time change affinity groups: engines refuse
	// some changes that come at once.
	Grouping *sessions.CreationQueue

	server   string
	caBundle string
	client   *ovirt.Client
	names    *ovirt.Directory
	pace     Pace

	mu      sync.Mutex
	version string
	site    string
	keys    map[string]hypervisor.Key
	// pending is what was asked for and may yet turn out to have failed.
	pending map[string]string
	// stopped is when power was taken away.
	stopped map[string]time.Time
	// devices are the host devices that were chosen for machines.
	devices map[hypervisor.Key]plan.Devices
	// acts are the IDs of the clusters that use the session and that this
	// management cluster acts for.
	acts map[string]bool
}

// Open opens a session. It calls wake with machines to look at again.
func Open(e ovirt.Endpoint, pace Pace, t *sessions.CreationQueue, wake func(...hypervisor.Key), turned func()) (*Session, error) {
	client, err := ovirt.NewClient(e, meter(e.Server))
	if err != nil {
		return nil, plan.Failure(infrav1.InvalidSpecReason, "%w", err)
	}
	s := &Session{
		server: e.Server, caBundle: e.Trust.CABundle, client: client, names: ovirt.NewDirectory(client), pace: pace, Turns: t,
		Grouping: fairqueue.New(1, "", func(key hypervisor.Key) string { return key.Namespace }, func(key hypervisor.Key) { wake(key) }), keys: map[string]hypervisor.Key{}, pending: map[string]string{}, stopped: map[string]time.Time{},
		acts: map[string]bool{}, devices: map[hypervisor.Key]plan.Devices{},
	}
	s.Mirror = ovirt.NewMirror(client, pace.Watch, plan.MarkPrefix, plan.Subject, func(subject string) {
		if key, ok := s.key(subject); ok {
			wake(key)
		}
	})
	s.Session = sessions.Open(sessions.Options{
		Endpoint: "oVirt engine " + e.Server, Serve: s.serve, Timeouts: pace.Session,
		Logout: s.leave, Requeue: func(key hypervisor.Key) { wake(key) }, AvailabilityChanged: turned, PhaseChanged: moved(e.Server),
	})
	return s, nil
}

// Server is the engine's address.
func (s *Session) Server() string { return s.server }

// CABundle verifies the engine's certificate; empty, if another way does.
func (s *Session) CABundle() string { return s.caBundle }

// serve logs in, learns what there is and keeps it up to date until that
// fails. The token lasts from one try to the next.
func (s *Session) serve(ctx context.Context, up func()) (err error) {
	defer func() { err = Classify(s.server, err) }()
	var api ovirt.Object
	if err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Into: &api}); err != nil {
		return err
	}
	s.mu.Lock()
	if api.ProductInfo != nil {
		s.version, s.site = api.ProductInfo.Version.Full, api.ProductInfo.InstanceID
	}
	s.mu.Unlock()
	if err := s.Mirror.Learn(ctx); err != nil {
		return err
	}
	up()
	for {
		if err := s.Mirror.Wait(ctx); err != nil {
			return err
		}
		if err := s.Mirror.Poll(ctx); err != nil {
			return err
		}
		s.dissolve(ctx)
	}
}

// leave gives the token back.
func (s *Session) leave() {
	s.Grouping.Close()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = s.client.Logout(ctx)
}

// Act allows the session to remove affinity groups of a cluster. A management
// cluster that may only read never calls it.
func (s *Session) Act(clusterID string) {
	if clusterID == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acts[clusterID] = true
}

// owns reports whether an affinity group was created for a cluster that this
// management cluster acts for.
func (s *Session) owns(g *ovirt.AffinityGroup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acts[plan.GroupOwner(g)]
}

// dissolve removes affinity groups of ours whose last member has gone. While a
// machine changes a group, that waits for the next round.
func (s *Session) dissolve(ctx context.Context) {
	empty := s.Mirror.Empty(s.owns)
	if len(empty) == 0 {
		return
	}
	// No machine has the empty key.
	defer s.Grouping.Release(hypervisor.Key{})
	if !s.Grouping.Acquire(hypervisor.Key{}) {
		return
	}
	for cluster, ids := range empty {
		for _, id := range ids {
			if err := s.dissolveGroup(ctx, cluster, id); err != nil {
				log.Log.WithName("zvirt").V(4).Info("Cannot remove an affinity group without members", "cause", err.Error())
			}
		}
	}
}

// dissolveGroup removes a group, unless it has got a member since it was listed.
func (s *Session) dissolveGroup(ctx context.Context, cluster, id string) error {
	path := []string{"clusters", cluster, "affinitygroups", id}
	var now ovirt.AffinityGroup
	err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: path, Into: &now})
	if err == nil && (!now.IsEmpty() || !s.owns(&now)) {
		return nil
	}
	if err == nil {
		err = s.client.Do(ctx, ovirt.Request{Method: http.MethodDelete, Path: path})
	}
	if err != nil && !Gone(err) {
		return err
	}
	s.Mirror.Dissolve(cluster, id)
	return nil
}

// Site is the engine's own ID, empty for an old engine, and its version.
func (s *Session) Site() (id, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.site, s.version
}

// Do sends a request that changes no VM.
func (s *Session) Do(ctx context.Context, r ovirt.Request) error {
	return Classify(s.server, s.send(ctx, r))
}

// send sends a request. An engine that gives no answer must not hold one
// caller after the other: the session is opened anew, and until it stands
// everybody is sent away.
func (s *Session) send(ctx context.Context, r ovirt.Request) error {
	err := s.client.Do(ctx, r)
	if ovirt.IsDown(err) && ctx.Err() == nil {
		s.Reconnect()
	}
	return err
}

// Ask sends the one request of an action on a VM and notes what came of it. On
// success then says what the engine looks like now.
func (s *Session) Ask(ctx context.Context, id uuid.UUID, busy string, r ovirt.Request, then func()) error {
	if !s.Mirror.Begin(id.String(), busy) {
		return nil
	}
	err := s.send(ctx, r)
	s.Mirror.End(id.String(), err, then)
	err = Classify(s.server, err)
	switch hypervisor.ReasonFor(err, "") {
	case infrav1.PlacementNotFoundReason, infrav1.TemplateNotFoundReason, infrav1.InvalidSpecReason,
		infrav1.PermissionDeniedReason, infrav1.HypervisorErrorReason:
		s.names.Forget(r.Uses) // an ID may be one of the past
	}
	return err
}

// Trouble returns what the engine last had to say about a VM, as an Error.
func (s *Session) Trouble(ctx context.Context, name string) error {
	text := "the engine gave the VM up"
	var events ovirt.Events
	err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{"events"}, Into: &events, Query: url.Values{
		"search": {fmt.Sprintf("vms.name=%q and severity=error sortby time desc", name)}, "max": {"1"},
	}})
	if err == nil && len(events.Events) > 0 {
		text = events.Events[0].Description
	}
	return Classify(s.server, &ovirt.Error{Status: http.StatusConflict, Detail: text})
}

// Keys returns all machines that were asked about.
func (s *Session) Keys() []hypervisor.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]hypervisor.Key, 0, len(s.keys))
	for _, key := range s.keys {
		keys = append(keys, key)
	}
	return keys
}

func (s *Session) key(subject string) (hypervisor.Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := s.keys[subject]
	return key, ok
}

// Track notes which machine a VM is for.
func (s *Session) Track(id uuid.UUID, key hypervisor.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[id.String()] = key
}

// Forget drops a machine that is gone for good.
func (s *Session) Forget(id uuid.UUID, key hypervisor.Key) {
	s.mu.Lock()
	delete(s.keys, id.String())
	delete(s.pending, id.String())
	delete(s.stopped, id.String())
	delete(s.devices, key)
	s.mu.Unlock()
	s.Mirror.Forget(id.String())
	s.Turns.Release(key)
	s.Grouping.Release(key)
}

// Expect notes what was asked for; nothing ends the wait.
func (s *Session) Expect(id uuid.UUID, verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if verb == "" {
		delete(s.pending, id.String())
		return
	}
	s.pending[id.String()] = verb
}

// Expected returns what was asked for.
func (s *Session) Expected(id uuid.UUID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[id.String()]
}

// PowerTaken notes that the engine agreed to take a VM's power away.
func (s *Session) PowerTaken(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped[id.String()] = time.Now()
}

// Stopping reports whether a VM's power was taken away so lately that it may
// yet stop.
func (s *Session) Stopping(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.stopped[id.String()]
	return known && time.Since(at) < s.pace.Stop
}
