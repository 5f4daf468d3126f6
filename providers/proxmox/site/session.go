package site

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fairqueue"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/polled"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// Timeouts are the timeouts and intervals of a session.
type Timeouts struct {
	Session sessions.Timeouts
	// Idle is the interval between two lists, and Busy the interval while a VM changes.
	// Node is how long a node may take to answer for its VMs.
	Idle, Busy, Node time.Duration
	// Agent is the first interval between two requests to a guest agent that reports no
	// address; it doubles up to AgentMax. Bootstrap is the interval after that until the
	// node has joined, and for the time Restarted after a restart of the VM. Detail is the
	// interval for a node that runs: only a DHCP server changes its address then.
	Agent, AgentMax, Bootstrap, Restarted, Detail time.Duration
	// Stale is how long the result of a task is preferred to an older status in the
	// list, and Appear how long a VM may still appear after a request without a response.
	Stale, Appear time.Duration
}

// DefaultTimeouts are the timeouts outside of tests. Nodes report the status of guests
// every ten seconds.
var DefaultTimeouts = Timeouts{
	Session: sessions.DefaultTimeouts, Idle: 4 * time.Second, Busy: 1500 * time.Millisecond, Node: 10 * time.Second,
	Agent: 5 * time.Second, AgentMax: time.Minute, Bootstrap: time.Minute, Restarted: 10 * time.Minute, Detail: 6 * time.Hour,
	Stale: 30 * time.Second, Appear: time.Minute,
}

// Verb is an action whose result is known after its task.
type Verb string

// Verbs.
const (
	Clone     Verb = "Cloning the template"
	Resize    Verb = "Growing the boot disk"
	Upload    Verb = "Uploading the bootstrap data"
	Configure Verb = "Configuring the VM"
	Start     Verb = "Powering on"
	Shutdown  Verb = "Shutting down"
	Stop      Verb = "Powering off"
	Destroy   Verb = "Deleting the VM"
	Tag       Verb = "Changing the tags"
	Increase  Verb = "Increasing CPUs and memory"
)

// Machine is the state of a machine. Other packages read copies.
type Machine struct {
	polled.Record

	// VMID is the ID of the VM that an action was sent for.
	VMID int
	// Verb is the last action, Busy is set while it runs, and Failure is its error.
	Verb    Verb
	Busy    bool
	Failure error
	// taken are the IDs that guests have which the user cannot see. rejected is the ID of
	// a clone that was rejected because a guest has it, which may be the VM.
	taken    map[int]bool
	rejected int
	// checking is set until it is known that no clone runs which may be the VM. The
	// machine is delivered after each list until then. Clones that began after unseenSince
	// are not its VM.
	checking    bool
	unseenSince time.Time
	// Uploaded, Resized and Deleted are set after these actions.
	Uploaded, Resized, Deleted, ImageDeleted bool
	// Network are the interfaces that the guest reported, and Report its progress.
	Network []pve.GuestInterface
	Report  string

	upid, node string
	// unlisted is the number of lists of tasks without the task.
	unlisted int
	// outdated is set from the end of a clone or a configuration until the list shows it.
	outdated bool
	// status is preferred to the status in the list, which may be older, until the list
	// shows it or until then.
	status string
	until  time.Time
	// nextQuery is the time of the next request to the guest agent, and tries the number of requests
	// without an address. bootstrap is set until the node has joined, and quietFrom is when
	// a guest that restarted is expected to be up.
	nextQuery time.Time
	quietFrom time.Time
	queried   bool
	bootstrap bool
	tries     int
	planned   plan.Planned
	mark      plan.Mark
	// template is the configuration of the template until the clone exists.
	template plan.Config
}

type machines = polled.Records[uuid.UUID, Machine, *Machine]

// Session is a session of one user at one Proxmox VE cluster.
type Session struct {
	*sessions.Session

	CreationQueue *sessions.CreationQueue
	// RuleQueue lets one machine at a time change the rules of the HA manager: a rule has
	// several machines.
	RuleQueue *sessions.CreationQueue

	server string
	trust  endpoints.Trust
	// user is the user of the requests, without the token.
	user     string
	client   *pve.Client
	timeouts Timeouts
	wake     func(...hypervisor.Key)

	mu          sync.Mutex
	id, version string
	done        uint64 // the last list that ended
	nodesRead   uint64 // the last list after which single nodes were read
	listed      time.Time
	guests      map[int]*pve.Resource
	nodes       []*pve.Resource
	storages    []*pve.Resource
	machines    *machines
	clones      cloneCheck
	// marks are the marks in the descriptions of VMs whose tags have none.
	marks    map[int]plan.Mark
	configs  map[int]cached[plan.Config]
	reads    singleflight.Group // of configurations that are kept
	networks map[string]cached[[]string]
	// images are the images with bootstrap data by the ID of their machine, and
	// contents are the storages whose images were read, with the time of the next try
	// if that failed.
	images   map[uuid.UUID][]Image
	contents map[string]time.Time
	// imagesRead is set once each storage was read, or failed.
	imagesRead bool
}

// cached is a value that is read again after some time.
type cached[T any] struct {
	value T
	read  time.Time
}

// maxAge is how long networks of nodes are kept, and templateAge how long
// configurations of templates: not all changes of them are in the list.
const (
	maxAge      = 10 * time.Minute
	templateAge = time.Minute
)

// Open opens a session. It calls wake with the machines that must be reconciled.
func Open(e pve.Endpoint, timeouts Timeouts, queue *sessions.CreationQueue, wake func(...hypervisor.Key), availabilityChanged func()) (*Session, error) {
	s := &Session{
		server: e.Servers[0], trust: e.Trust, timeouts: timeouts, CreationQueue: queue, wake: wake,
		RuleQueue: fairqueue.New(1, "", func(key hypervisor.Key) string { return key.Namespace }, func(key hypervisor.Key) { wake(key) }),
		guests:    map[int]*pve.Resource{}, machines: polled.New[uuid.UUID, Machine](timeouts.Appear), marks: map[int]plan.Mark{}, configs: map[int]cached[plan.Config]{}, networks: map[string]cached[[]string]{},
		images: map[uuid.UUID][]Image{}, contents: map[string]time.Time{},
	}
	s.user, _, _ = strings.Cut(e.Username, "!")
	m := sessions.NewMeter("proxmox", s.server)
	var err error
	// Proxmox VE rejects most requests with 500.
	s.client, err = pve.NewClient(e, transport.MeterOf(m, http.StatusBadGateway))
	if err != nil {
		return nil, hypervisor.Failure(infrav1.InvalidSpecReason, "%w", err)
	}
	s.Session = sessions.Open(sessions.Options{
		Endpoint: "Proxmox VE " + s.server, Serve: s.serve, Timeouts: timeouts.Session, Logout: s.logout,
		Requeue: func(key hypervisor.Key) { wake(key) }, AvailabilityChanged: availabilityChanged, PhaseChanged: m.Phase,
	})
	return s, nil
}

// logout ends the login.
func (s *Session) logout() {
	s.RuleQueue.Close()
	s.client.Logout()
}

// Server returns the first server.
func (s *Session) Server() string { return s.server }

// Trust returns how the certificates of the servers are verified.
func (s *Session) Trust() endpoints.Trust { return s.trust }

// Info returns the ID of the Proxmox VE cluster and its version.
func (s *Session) Info() (id, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.version
}

// Do sends a request.
func (s *Session) Do(ctx context.Context, r pve.Request) error {
	err := s.client.Do(ctx, r)
	if pve.IsDown(err) && ctx.Err() == nil {
		s.Reconnect()
	}
	return Classify(s.server, err)
}

// Machine returns a copy of the state of a machine, and stores its key.
func (s *Session) Machine(id uuid.UUID, key hypervisor.Key) Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines.Get(id)
	m.Key = key
	return *m
}

// Forget removes a machine that was deleted.
func (s *Session) Forget(id uuid.UUID, key hypervisor.Key) {
	s.mu.Lock()
	s.machines.Forget(id)
	s.mu.Unlock()
	s.CreationQueue.Release(key)
	s.RuleQueue.Release(key)
}

// Keys returns the keys of all machines.
func (s *Session) Keys() []hypervisor.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machines.Keys()
}

// SetActive sets whether the list is polled often for a machine.
func (s *Session) SetActive(id uuid.UUID, active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines.SetActive(s.machines.Get(id), active)
}

// Query sets whether addresses are requested from the guest agent of a running VM.
func (s *Session) Query(id uuid.UUID, vmid int, running, bootstrap bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines.Get(id)
	if running && !m.queried {
		m.nextQuery, m.tries = time.Now().Add(s.timeouts.Agent), 0
	}
	if !running {
		m.Network, m.Report = nil, ""
	}
	if m.bootstrap && !bootstrap && len(m.Network) > 0 {
		m.nextQuery = time.Now().Add(s.timeouts.Detail)
	}
	m.VMID, m.queried, m.bootstrap = vmid, running, bootstrap
}

// MayAppear reports whether a VM of a machine, which exists since a time, may have been
// requested without a known result, and whether it may still appear in the list of a
// user who sees it. The machine is delivered when it no longer may.
func (s *Session) MayAppear(id uuid.UUID, exists time.Time) (unknown, soon bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machines.MayAppear(s.machines.Get(id), exists)
}

// SetTaken stores that a guest which the user cannot see has an ID.
func (s *Session) SetTaken(id uuid.UUID, vmid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines.Get(id)
	if m.taken == nil {
		m.taken = map[int]bool{}
	}
	m.taken[vmid], m.rejected, m.unseenSince = true, 0, time.Time{}
	s.wake(m.Key)
}

// Action is a request that changes a VM.
type Action struct {
	Verb    Verb
	VMID    int
	Node    string
	Request pve.Request
	// Change changes the entry of the list as the request changes the VM.
	Change func(vm *pve.Resource)
	// Storage is the storage of an upload.
	Storage string
	// Planned is the VM that a clone will be, Mark its mark, and Config the
	// configuration of its template.
	Planned plan.Planned
	Mark    plan.Mark
	Config  plan.Config
}

// Act sends the request of an action, unless another one runs. The task of the request
// keeps the machine busy.
func (s *Session) Act(ctx context.Context, id uuid.UUID, a Action) error {
	s.mu.Lock()
	m := s.machines.Get(id)
	// A power-off ends a shutdown.
	if m.Busy && (m.Verb != Shutdown || a.Verb != Stop) {
		s.mu.Unlock()
		return nil
	}
	m.Verb, m.VMID, m.node, m.upid, m.unlisted, m.Busy, m.Failure = a.Verb, a.VMID, a.Node, "", 0, true, nil
	switch a.Verb { //nolint:exhaustive // the others have no state of their own
	case Clone:
		m.planned, m.mark, m.template, m.Resized, m.Uploaded = a.Planned, a.Mark, a.Config, false, false
		m.unseenSince = time.Time{}
	case Upload:
		s.setImage(id, Image{a.Node, a.Storage})
	}
	s.mu.Unlock()
	var upid string
	a.Request.Into = &upid
	err := s.Do(ctx, a.Request)
	s.mu.Lock()
	defer s.mu.Unlock()
	m.upid = upid
	s.machines.Written(m)
	s.machines.SetActive(m, true)
	switch {
	case pve.IsAmbiguous(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The next list shows the result.
		m.upid = unknownTask
		if a.Verb == Clone {
			m.Unknown()
		}
	case err != nil:
		m.Busy, m.planned = false, plan.Planned{}
		clear(s.configs) // that of the template may be outdated
		if a.Verb == Clone && pve.IsExisting(err) {
			m.rejected, m.checking, m.unseenSince = a.VMID, true, time.Now()
		}
	case upid == "":
		if g := s.guests[a.VMID]; g != nil && a.Change != nil {
			changed := *g
			a.Change(&changed)
			s.guests[a.VMID] = &changed
		}
		s.finish(m, "OK")
	}
	s.machines.PollSoon()
	return err
}

// unknownTask stands for the task of a request without a response.
const unknownTask = "unknown"

// finish records the result of a task. The caller holds the lock.
func (s *Session) finish(m *Machine, result string) {
	m.Busy, m.upid = false, ""
	s.machines.Written(m)
	if m.Verb == Clone {
		s.CreationQueue.Done(m.Key)
		delete(s.marks, m.VMID)
	}
	// A task that ended with warnings succeeded.
	if result == "OK" || result == "" || pve.IsWarning(result) {
		s.succeeded(m)
	} else {
		s.failed(m, result)
	}
	s.wake(m.Key)
}

// failed records the failure of a task. A guest may ignore a shutdown. The caller holds the
// lock.
func (s *Session) failed(m *Machine, result string) {
	if m.Verb != Shutdown {
		m.Failure = Classify(s.server, &pve.Error{Status: http.StatusInternalServerError, Detail: result})
	}
	if m.Verb == Clone {
		m.planned = plan.Planned{}
		clear(s.configs) // that of the template may be outdated
	}
}

// succeeded records the success of a task. The caller holds the lock.
func (s *Session) succeeded(m *Machine) {
	m.outdated = m.Verb == Clone || m.Verb == Configure
	switch m.Verb {
	case Clone:
		// A clone has the options of its template, and the same disks.
		s.configs[m.VMID] = cached[plan.Config]{m.template, time.Now()}
		s.marks[m.VMID], m.template = m.mark, nil
		fallthrough
	case Stop, Shutdown:
		m.status, m.until = "stopped", time.Now().Add(s.timeouts.Stale)
	case Start:
		m.status, m.until = "running", time.Now().Add(s.timeouts.Stale)
	case Resize:
		m.Resized = true
	case Upload:
		m.Uploaded = true
	case Destroy:
		m.Deleted = true
		delete(s.guests, m.VMID)
	case Configure:
		m.planned = plan.Planned{}
	case Tag, Increase: // the list shows the result
	}
}

// KeptConfig returns the configuration of a VM that nothing else changes, such as a
// template. It is read once for all machines, and again after some time.
func (s *Session) KeptConfig(ctx context.Context, node string, vmid int) (plan.Config, error) {
	read, err, _ := s.reads.Do(strconv.Itoa(vmid), func() (any, error) {
		s.mu.Lock()
		known, ok := s.configs[vmid]
		s.mu.Unlock()
		if ok && time.Since(known.read) < templateAge {
			return known.value, nil
		}
		c, err := s.Config(ctx, node, vmid)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.configs[vmid] = cached[plan.Config]{c, time.Now()}
		return c, nil
	})
	c, _ := read.(plan.Config)
	return c, err
}

// Config reads the configuration of a VM.
func (s *Session) Config(ctx context.Context, node string, vmid int) (plan.Config, error) {
	return s.readConfig(ctx, node, vmid, s.Do)
}

// readConfig reads the configuration of a VM with a function that sends the request.
func (s *Session) readConfig(ctx context.Context, node string, vmid int, send func(context.Context, pve.Request) error) (plan.Config, error) {
	var raw map[string]any
	if err := send(ctx, pve.Request{Method: http.MethodGet, Path: VMPath(node, vmid, "config"), Into: &raw}); err != nil {
		return nil, err
	}
	c := plan.Config{}
	for name, value := range raw {
		if text, ok := value.(string); ok {
			c[name] = text
		}
	}
	return c, nil
}

// Networks returns the names of the bridges and virtual networks of a node. They are
// read again after some time, and if a wanted one is not among them.
func (s *Session) Networks(ctx context.Context, node string, wanted []string) ([]string, error) {
	s.mu.Lock()
	known, ok := s.networks[node]
	s.mu.Unlock()
	missing := slices.ContainsFunc(wanted, func(name string) bool { return !slices.Contains(known.value, name) })
	if ok && !missing && time.Since(known.read) < maxAge {
		return known.value, nil
	}
	var found []struct {
		Name string `json:"iface"`
	}
	err := s.Do(ctx, pve.Request{
		Method: http.MethodGet, Path: []string{"nodes", node, "network"}, Form: url.Values{"type": {"any_bridge"}}, Into: &found,
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range found {
		names = append(names, n.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.networks[node] = cached[[]string]{names, time.Now()}
	return names, nil
}

// VMPath returns the path of a VM.
func VMPath(node string, vmid int, rest ...string) []string {
	return append([]string{"nodes", node, "qemu", strconv.Itoa(vmid)}, rest...)
}
