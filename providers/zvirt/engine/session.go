package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fairqueue"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Actions whose result is known only after their request.
const (
	Creating = "create"
	Starting = "start"
	Removing = "remove"
)

// pendingAction is an accepted action, and its failure once that is known.
type pendingAction struct {
	verb    string
	failure error
}

// Timeouts are the timeouts and intervals of a session.
type Timeouts struct {
	Session sessions.Timeouts
	Poll    ovirt.PollIntervals
	// PowerOff is the time after which a power-off request is repeated if the VM
	// still runs.
	PowerOff time.Duration
}

// DefaultTimeouts are the timeouts outside of tests.
var DefaultTimeouts = Timeouts{Session: sessions.DefaultTimeouts, Poll: ovirt.DefaultPollIntervals, PowerOff: 30 * time.Second}

// provider is the label of zVirt in metrics.
const provider = "zvirt"

// Session is a session of one user at one engine, with a cache of its VMs.
type Session struct {
	*sessions.Session

	Cache         *ovirt.Cache
	CreationQueue *sessions.CreationQueue
	// GroupQueue lets one machine at a time change affinity groups, because
	// engines reject some concurrent changes.
	GroupQueue *sessions.CreationQueue

	server   string
	trust    endpoints.Trust
	client   *ovirt.Client
	names    *ovirt.Directory
	timeouts Timeouts

	mu       sync.Mutex
	version  string
	engineID string
	// pending are the accepted actions that may still fail or failed, by the ID of the VM's
	// owner.
	pending map[string]pendingAction
	// powerOffs are the times of the last power-off requests.
	powerOffs map[string]time.Time
	// devices are the host devices that were chosen for machines.
	devices map[hypervisor.Key]plan.Devices
	// activeClusters are the IDs of the clusters that use the session and that
	// this management cluster manages.
	activeClusters map[string]bool
}

// Open opens a session. It calls wake with the machines that must be
// reconciled.
func Open(e ovirt.Endpoint, timeouts Timeouts, t *sessions.CreationQueue, wake func(...hypervisor.Key), availabilityChanged func()) (*Session, error) {
	s := &Session{
		server: e.Server, trust: e.Trust, timeouts: timeouts, CreationQueue: t,
		GroupQueue: fairqueue.New(1, "", func(key hypervisor.Key) string { return key.Namespace }, func(key hypervisor.Key) { wake(key) }), pending: map[string]pendingAction{}, powerOffs: map[string]time.Time{},
		activeClusters: map[string]bool{}, devices: map[hypervisor.Key]plan.Devices{},
	}
	m := sessions.NewMeter(provider, e.Server)
	client, err := ovirt.NewClient(e, transport.MeterOf(m, http.StatusInternalServerError))
	if err != nil {
		return nil, hypervisor.Failure(infrav1.InvalidSpecReason, "%w", err)
	}
	s.client, s.names = client, ovirt.NewDirectory(client)
	s.Cache = ovirt.NewCache(client, timeouts.Poll, plan.MarkPrefix, plan.OwnerOf, func(_ string, key hypervisor.Key) {
		if key != (hypervisor.Key{}) {
			wake(key)
		}
	})
	s.Session = sessions.Open(sessions.Options{
		Endpoint: "oVirt engine " + e.Server, Serve: s.serve, Timeouts: timeouts.Session,
		Logout: s.logout, Requeue: func(key hypervisor.Key) { wake(key) }, AvailabilityChanged: availabilityChanged, PhaseChanged: m.Phase,
	})
	return s, nil
}

// Server returns the address of the engine.
func (s *Session) Server() string { return s.server }

// Trust returns how the certificate of the engine is verified.
func (s *Session) Trust() endpoints.Trust { return s.trust }

// serve logs in, fills the cache and keeps it up to date until that fails. The
// next call of serve uses the same token.
func (s *Session) serve(ctx context.Context, up func()) (err error) {
	defer func() { err = Classify(s.server, err) }()
	api, err := s.client.Identify(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.version, s.engineID = "", ""
	if api.ProductInfo != nil {
		s.version, s.engineID = api.ProductInfo.Version.Full, api.ProductInfo.InstanceID
	}
	s.mu.Unlock()
	if err := s.Cache.Refresh(ctx); err != nil {
		return err
	}
	up()
	for {
		if err := s.Cache.Wait(ctx); err != nil {
			return err
		}
		if err := s.Cache.Poll(ctx); err != nil {
			return err
		}
		s.removeEmptyGroups(ctx)
	}
}

// logout revokes the token.
func (s *Session) logout() {
	s.GroupQueue.Close()
	_ = s.client.Logout(context.Background())
}

// AllowGroupRemoval allows the session to remove affinity groups of a cluster.
// A management cluster that may only read does not call it.
func (s *Session) AllowGroupRemoval(clusterID string) {
	if clusterID == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activeClusters[clusterID] = true
}

// owns reports whether an affinity group was created for a cluster that this
// management cluster manages.
func (s *Session) owns(g *ovirt.AffinityGroup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.activeClusters[plan.GroupOwner(g)]
}

// removeEmptyGroups removes the affinity groups that managers created and that
// have no member. While a machine changes a group, it waits for the next poll.
func (s *Session) removeEmptyGroups(ctx context.Context) {
	empty := s.Cache.EmptyGroups(s.owns)
	if len(empty) == 0 {
		return
	}
	// No machine has the empty key.
	defer s.GroupQueue.Release(hypervisor.Key{})
	if !s.GroupQueue.Acquire(hypervisor.Key{}) {
		return
	}
	for cluster, ids := range empty {
		for _, id := range ids {
			if err := s.removeGroupIfEmpty(ctx, cluster, id); err != nil {
				log.Log.WithName("zvirt").V(4).Info("Cannot remove an affinity group without members", "cause", err.Error())
			}
		}
	}
}

// removeGroupIfEmpty removes a group, unless it has a member that was added
// after the list request.
func (s *Session) removeGroupIfEmpty(ctx context.Context, cluster, id string) error {
	path := []string{"clusters", cluster, "affinitygroups", id}
	var now ovirt.AffinityGroup
	err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: path, Into: &now})
	if err == nil && (!now.IsEmpty() || !s.owns(&now)) {
		return nil
	}
	if err == nil {
		err = s.client.Do(ctx, ovirt.Request{Method: http.MethodDelete, Path: path})
	}
	if err != nil && !IsNotFound(err) {
		return err
	}
	s.Cache.RemoveGroup(cluster, id)
	return nil
}

// EngineInfo returns the ID that the engine generated for itself, and its
// version. Old engines have no ID.
func (s *Session) EngineInfo() (id, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engineID, s.version
}

// Do sends a request that does not change a VM.
func (s *Session) Do(ctx context.Context, r ovirt.Request) error {
	return Classify(s.server, s.send(ctx, r))
}

// send sends a request. If the engine does not respond, or another one does, the
// session is opened again, and until it is up other callers get an error at once: otherwise each
// caller would wait for its own timeout.
func (s *Session) send(ctx context.Context, r ovirt.Request) error {
	err := s.client.Do(ctx, r)
	if ovirt.IsDown(err) && ctx.Err() == nil || errors.Is(err, ovirt.ErrOtherEngine) {
		s.Reconnect()
	}
	return err
}

// Act sends the request of an action on a VM and records the result. After a
// success, then updates the cache.
func (s *Session) Act(ctx context.Context, id uuid.UUID, busy string, r ovirt.Request, then func()) error {
	if !s.Cache.Begin(id.String(), busy) {
		return nil
	}
	err := s.send(ctx, r)
	s.Cache.End(id.String(), err, then)
	err = Classify(s.server, err)
	switch hypervisor.ReasonFor(err, "") {
	case infrav1.PlacementNotFoundReason, infrav1.TemplateNotFoundReason, infrav1.InvalidSpecReason,
		infrav1.PermissionDeniedReason, infrav1.HypervisorErrorReason:
		s.names.Forget(r.Uses) // an ID in the request may be outdated
	}
	return err
}

// LastError returns the last error event of a VM, as an Error.
func (s *Session) LastError(ctx context.Context, name string) error {
	text := "the engine canceled the action on the VM"
	var events ovirt.Events
	err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Path: []string{"events"}, Into: &events, Query: url.Values{
		"search": {fmt.Sprintf("vms.name=%q and severity=error sortby time desc", name)}, "max": {"1"},
	}})
	if err == nil && len(events.Events) > 0 {
		text = events.Events[0].Description
	}
	return Classify(s.server, &ovirt.Error{Status: http.StatusConflict, Detail: text})
}

// Keys returns the keys of all tracked machines.
func (s *Session) Keys() []hypervisor.Key { return s.Cache.Keys() }

// Forget removes a machine that was deleted.
func (s *Session) Forget(id uuid.UUID, key hypervisor.Key) {
	s.mu.Lock()
	delete(s.pending, id.String())
	delete(s.powerOffs, id.String())
	delete(s.devices, key)
	s.mu.Unlock()
	s.Cache.Forget(id.String())
	s.CreationQueue.Release(key)
	s.GroupQueue.Release(key)
}

// SetPending stores the action whose result is not known yet. It does not
// expire.
func (s *Session) SetPending(id uuid.UUID, verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if verb == "" {
		delete(s.pending, id.String())
		return
	}
	s.pending[id.String()] = pendingAction{verb: verb}
}

// SetFailure stores the failure of the pending action.
func (s *Session) SetFailure(id uuid.UUID, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[id.String()] = pendingAction{verb: s.pending[id.String()].verb, failure: failure}
}

// Pending returns the action whose result is not known yet, or its failure.
func (s *Session) Pending(id uuid.UUID) (verb string, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pending[id.String()]
	return p.verb, p.failure
}

// SetPowerOffRequested stores the time at which the engine accepted a power-off
// request.
func (s *Session) SetPowerOffRequested(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.powerOffs[id.String()] = time.Now()
}

// IsPoweringOff reports whether the last power-off request is so recent that
// the VM may still stop.
func (s *Session) IsPoweringOff(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.powerOffs[id.String()]
	return known && time.Since(at) < s.timeouts.PowerOff
}
