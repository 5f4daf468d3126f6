package zvirt

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/internal/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/internal/turns"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// farewell is how long an engine has to take a token back.
const farewell = 2 * time.Second

// session is one account at one engine, with what it shows of our VMs.
type session struct {
	*sessions.Session

	server string
	client *ovirt.Client
	mirror *ovirt.Mirror
	names  *ovirt.Directory
	turns  *turns.Turns[hypervisor.Key]
	// grouping lets one at a time change affinity groups: engines refuse
	// some that come at once.
	grouping chan struct{}

	mu      sync.Mutex
	version string
	keys    map[string]hypervisor.Key
	// pending is what was asked for and may yet turn out to have failed.
	pending map[string]string
}

// connect opens a session.
func connect(e ovirt.Endpoint, pace pace, t *turns.Turns[hypervisor.Key], wake func(...hypervisor.Key), turned func()) (*session, error) {
	client, err := ovirt.NewClient(e, meter(e.Server))
	if err != nil {
		return nil, failure(infrav1.InvalidSpecReason, "%w", err)
	}
	s := &session{
		server: e.Server, client: client, names: ovirt.NewDirectory(client), turns: t,
		grouping: make(chan struct{}, 1), keys: map[string]hypervisor.Key{}, pending: map[string]string{},
	}
	s.mirror = ovirt.NewMirror(client, pace.watch, plan.MarkPrefix, plan.Subject, func(subject string) {
		if key, ok := s.key(subject); ok {
			wake(key)
		}
	})
	s.Session = sessions.Open(sessions.Options{
		Endpoint: "oVirt engine " + e.Server, Serve: s.serve, Pace: pace.session,
		Wake: func(key hypervisor.Key) { wake(key) }, Turned: turned, Moved: moved(e.Server),
	})
	return s, nil
}

// serve logs in, learns what there is and keeps it up to date until that
// fails. The token lasts from one try to the next.
func (s *session) serve(ctx context.Context, up func()) (err error) {
	defer func() {
		err = classify(s.server, err)
		if ctx.Err() != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
			defer cancel()
			_ = s.client.Logout(end)
		}
	}()
	var api ovirt.Object
	if err := s.client.Do(ctx, ovirt.Request{Method: http.MethodGet, Into: &api}); err != nil {
		return err
	}
	s.mu.Lock()
	if api.ProductInfo != nil {
		s.version = api.ProductInfo.Version.Full
	}
	s.mu.Unlock()
	if err := s.mirror.Learn(ctx); err != nil {
		return err
	}
	up()
	for {
		if err := s.mirror.Wait(ctx); err != nil {
			return err
		}
		if err := s.mirror.Poll(ctx); err != nil {
			return err
		}
		s.dissolve(ctx)
	}
}

// dissolve removes affinity groups of ours whose last member has gone.
func (s *session) dissolve(ctx context.Context) {
	for cluster, ids := range s.mirror.Empty(plan.GroupPrefix) {
		for _, id := range ids {
			err := s.client.Do(ctx, ovirt.Request{Method: http.MethodDelete, Path: []string{"clusters", cluster, "affinitygroups", id}})
			if err != nil && !gone(err) {
				log.Log.WithName("zvirt").V(4).Info("Cannot remove an affinity group without members", "cause", err.Error())
				continue
			}
			s.mirror.Dissolve(cluster, id)
		}
	}
}

// Keys returns all machines that were asked about.
func (s *session) Keys() []hypervisor.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]hypervisor.Key, 0, len(s.keys))
	for _, key := range s.keys {
		keys = append(keys, key)
	}
	return keys
}

func (s *session) key(subject string) (hypervisor.Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := s.keys[subject]
	return key, ok
}

// track notes which machine a VM is for.
func (s *session) track(id uuid.UUID, key hypervisor.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[id.String()] = key
}

// forget drops a machine that is gone for good.
func (s *session) forget(id uuid.UUID, key hypervisor.Key) {
	s.mu.Lock()
	delete(s.keys, id.String())
	delete(s.pending, id.String())
	s.mu.Unlock()
	s.mirror.Forget(id.String())
	s.turns.Release(key)
}

// expect notes what was asked for; nothing ends the wait.
func (s *session) expect(id uuid.UUID, verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if verb == "" {
		delete(s.pending, id.String())
		return
	}
	s.pending[id.String()] = verb
}

// expected returns what was asked for.
func (s *session) expected(id uuid.UUID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[id.String()]
}
