package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	tick = 30 * time.Second
	// startupTimeout and nodeTimeout are the MachineHealthCheck timeouts for a machine
	// without a node, and for a node that is not ready.
	startupTimeout = 20 * tick
	nodeTimeout    = 4 * tick
	// stale is the maximum age of the status of an API server's pod.
	stale = 2 * tick
)

// host is a machine and the true state of its host, observed or not.
type host struct {
	Machine

	template int
	// running is true while the host runs; lost ones never run again.
	running, lost bool
	// kubelet is true while the kubelet runs.
	kubelet bool
	// api is true while the process of its API server runs, and apiEnded is
	// when it ended last.
	api      bool
	apiEnded time.Time
	// exists is true from the clone until the host is destroyed.
	exists bool
	bootAt time.Time
	// member is the ID of its etcd member, 0 without one; of is the number of
	// the init that its cluster began with, also after the member was removed.
	member, of     uint64
	unhealthySince time.Time
	drainedAt      time.Time
	// releasedInUse is true if the hook was released when the control plane was
	// known to be initialized; failuresSeen is the number of failures at that
	// time.
	releasedInUse bool
	failuresSeen  int
	destroyAt     time.Time
	remediated    bool
	// joinedOnce is true once it was a node.
	joinedOnce bool
	// updateFails is true if a step of its change in place fails.
	updateFails bool
	// vip is true while kube-vip runs, and restores is true if the machine was
	// created to restore etcd.
	vip, restores bool
}

// world is a model of a control plane: the true state, which is observed in
// parts.
type world struct {
	r      *rand.Rand
	now    time.Time
	calm   bool
	hosts  []*host
	count  int
	lock   string
	since  time.Time
	inits  uint64
	nextID uint64
	etcd   []Member
	alarm  bool
	// direct is true where managers reach API servers and members at their own
	// addresses, and local where kubelets use the API server of their own host.
	direct, local bool
	// noCNI is true where no node stays ready, as without a CNI.
	noCNI bool
	// changes counts the changes of the world that no decision made, and
	// observed is their number at the last observation, or -1 if that
	// observation was old.
	changes, observed int
	// late is a decision of a controller that froze before it acted, and
	// continues at lateAt while another controller runs.
	late     *Decision
	lateLast *Remediation
	lateLock string
	lateAt   time.Time
	// answered is true if an API server served at the last observation.
	answered bool
	// acting is true while the late controller acts.
	acting bool
	// soles are the times at which a sole machine that had joined was remediated,
	// and then each replacement.
	soles []time.Time
	// sole is the last of them.
	sole Machine
	// moved, restored, overtaken, checked and checkedEndpoint count moves,
	// restores, late actions, and checks of redundancy and of the endpoint.
	moved, restored, overtaken, checked, checkedEndpoint int
	restores                                             restoreWorld
	// kubeVIP is true where a node holds the endpoint's address: holder, since
	// heldSince.
	kubeVIP   bool
	holder    string
	heldSince time.Time
	// observation is the last one.
	observation Input
	// fenced is true while another management cluster acts.
	fenced bool

	// The state that is stored outside of the machines.
	initialized bool
	last        *Remediation

	in       Input
	template int
	// failures counts the injected faults.
	failures int
	// seen are older observations of etcd.
	seen []look
	// faulty is the fault rate, in 1/1000 for each tick and host.
	faulty int

	broken string
	did    map[Action]int
	// traced enables the trace.
	traced bool
	trace  []string
}

// look is one observation of etcd and the true state at that time.
type look struct {
	etcd     *Etcd
	healthy  map[uint64]bool
	failures int
}

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 4))
	w := &world{r: r, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), nextID: 100, did: map[Action]int{}, faulty: r.IntN(8)}
	if r.IntN(4) == 0 {
		w.faulty *= 4
	}
	w.in = Input{
		Replicas: []int{1, 3, 5}[r.IntN(3)], Version: "v1.36.3", KubeadmVersion: "v1.36.3", MaxSurge: r.IntN(2), ExternalEtcd: r.IntN(3) == 0,
		Limits: Limits{
			MaxRetry: -1, RetryPeriod: time.Duration(r.IntN(5)) * tick, MinHealthyPeriod: time.Hour,
			JoinTimeout: 35 * time.Minute, LearnerGrace: 2 * time.Minute,
			RestoreTimeout: 45 * time.Minute, RestorePause: 5 * time.Minute, EndpointMoveTimeout: 10 * time.Minute,
			UpdateTimeout: 10 * time.Minute,
		},
		InPlace: []InPlace{Never, Prefer, Only}[seed%3],
	}
	if r.IntN(3) == 0 {
		w.in.Limits.MaxRetry = r.IntN(3)
	}
	w.direct, w.local, w.noCNI = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(10) == 0
	w.kubeVIP = r.IntN(2) == 0
	return w
}

// chance is true with the given probability in 1/1000.
func (w *world) chance(of int) bool { return w.r.IntN(1000) < of }

func (w *world) failf(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

func (w *world) find(name string) *host {
	for _, h := range w.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

func (w *world) on(id uint64) *host {
	for _, h := range w.hosts {
		if h.exists && h.member == id {
			return h
		}
	}
	return nil
}

// up reports whether a member works.
func (w *world) up(id uint64) bool {
	h := w.on(id)
	return h != nil && h.running
}

// quorum returns the number of voters and of working voters.
func (w *world) quorum() (voters, healthy int, ok bool) {
	for _, m := range w.etcd {
		if m.Learner {
			continue
		}
		voters++
		if w.up(m.ID) {
			healthy++
		}
	}
	return voters, healthy, voters > 0 && healthy > voters/2
}

// votes reports whether a host has a voting member that works.
func (w *world) votes(h *host) bool {
	at := slices.IndexFunc(w.etcd, func(m Member) bool { return m.ID == h.member && !m.Learner })
	return at >= 0 && w.up(h.member)
}

// serves reports whether the API server on a host serves.
func (w *world) serves(h *host) bool {
	if !h.exists || !h.running || !h.api {
		return false
	}
	if w.in.ExternalEtcd {
		return h.of != 0
	}
	_, _, ok := w.quorum()
	return ok && w.votes(h)
}

// answers reports whether an API server serves.
func (w *world) answers() bool { return slices.ContainsFunc(w.hosts, w.serves) }

// kubeletReports reports whether the kubelet of a host reports.
func (w *world) kubeletReports(h *host) bool { return h.running && h.kubelet && (h.api || !w.local) }

// reachable reports whether the member on a host is reachable.
func (w *world) reachable(h *host) bool { return h.running && (w.kubeletReports(h) || w.direct) }

// refusesConnections reports whether a manager finds that a running host has no API
// server.
func (w *world) refusesConnections(h *host) bool {
	return w.direct && h.running && !h.api && w.answers()
}

// seenServing is the observed state of the API server on a host.
func (w *world) seenServing(h *host) APIServer {
	switch {
	case w.direct && w.serves(h):
		return APIServerServes
	case w.refusesConnections(h):
		return APIServerFails
	case w.direct && h.Node && !h.api && w.now.Sub(h.apiEnded) < stale:
		return APIServerUnknown
	case h.Node && !w.kubeletReports(h) && w.direct && w.answers():
		return APIServerFails
	case !h.Node || !w.kubeletReports(h):
		return APIServerUnknown
	case !h.api:
		return APIServerFails
	case w.direct:
		return APIServerUnknown
	default:
		return APIServerServes
	}
}

// step lets half a minute pass.
func (w *world) step() {
	w.now = w.now.Add(tick)
	if !w.calm {
		w.injectFaults()
	}
	for _, h := range slices.Clone(w.hosts) {
		w.advance(h)
	}
	w.elect()
	w.takeEndpoint()
	w.healthCheck()
	w.join()
	w.advanceRestore()
}

// injectFaults injects faults.
func (w *world) injectFaults() {
	for _, h := range w.hosts {
		if !h.exists || !w.chance(w.faulty) {
			continue
		}
		switch w.r.IntN(7) {
		case 0:
			h.lost, h.running = true, false
		case 1:
			h.running = false
		case 2, 3:
			w.endAPI(h)
		case 4:
			h.vip = false
		default:
			h.kubelet = false
		}
		w.failures++
		w.changes++
	}
	for _, h := range w.hosts {
		if h.exists && !h.lost && w.chance(150) {
			h.running, h.kubelet, h.api = true, true, true
			w.changes++
		}
		if w.noCNI && h.Node {
			h.kubelet = false
			w.failures++
			w.changes++
		}
	}
	if w.chance(w.faulty / 4) {
		w.failAll()
	}
	if w.chance(5) {
		w.alarm = !w.alarm
		w.changes++
	}
}

// endAPI stops the process of an API server permanently.
func (w *world) endAPI(h *host) {
	if h.api {
		h.api, h.apiEnded = false, w.now
	}
}

// failAll injects the same fault on all hosts at once, as a wrong policy does.
func (w *world) failAll() {
	kubelets := w.chance(700)
	for _, h := range w.hosts {
		if h.exists {
			h.kubelet = h.kubelet && !kubelets
			if !kubelets && !w.chance(300) {
				w.endAPI(h)
			}
		}
	}
	w.failures++
	w.changes++
}

// move recreates all objects in another management cluster: without their
// deletion timestamps, and with a hook.
func (w *world) move() {
	w.moved++
	w.changes++
	w.failures++
	for _, h := range w.hosts {
		if h.Released && w.chance(500) {
			h.lost, h.running = true, false // Its VM was about to be destroyed.
		}
		h.Deleting, h.AtHook, h.Released, h.Created, h.UpdatingSince = false, false, false, w.now, w.now
	}
}

// users changes the spec and deletes machines, as users do.
func (w *world) users() {
	w.fenced = w.chance(20) || w.fenced && w.chance(800)
	switch w.r.IntN(66) {
	case 8:
		if len(w.hosts) > 0 {
			w.hosts[w.r.IntN(len(w.hosts))].SkipRedundancy = true
		}
	case 9:
		if w.chance(200) {
			w.requestRestore()
		}
	case 10:
		if w.chance(500) {
			w.move()
		}
	case 11:
		for _, h := range w.hosts {
			if w.chance(600) {
				w.deleteMachine(h)
			}
		}
	case 0:
		w.in.Replicas, w.soles = []int{1, 3, 5}[w.r.IntN(3)], nil
		if w.in.ExternalEtcd {
			w.in.Replicas = 1 + w.r.IntN(5)
		}
	case 1:
		w.template++
		if w.in.Version != newerVersion && w.chance(300) {
			w.in.Version = newerVersion
		}
	case 2:
		w.in.Strategy = []Strategy{RollingUpdate, OnDelete}[w.r.IntN(2)]
	case 3:
		w.in.MaxSurge = w.r.IntN(2)
	case 4:
		w.in.RolloutAfter = w.now
	case 5, 6:
		if len(w.hosts) > 0 {
			w.deleteMachine(w.hosts[w.r.IntN(len(w.hosts))])
		}
	case 7:
		if len(w.hosts) > 0 {
			w.hosts[w.r.IntN(len(w.hosts))].DeleteFirst = true
		}
	}
}

func (w *world) deleteMachine(h *host) {
	if !h.Deleting {
		h.Deleting = true
		h.drainedAt = w.now.Add(time.Duration(w.r.IntN(4)) * tick)
	}
}

// advance advances one host: cloned, bootstrapped, booted, destroyed.
func (w *world) advance(h *host) {
	if h.Role == Undecided && !h.Deleting && h.Name != w.lock && (w.initialized || w.find(w.lock) != nil) && w.chance(700) {
		h.Role = Join
	}
	if h.Role != Undecided && !h.exists && !h.Deleting && h.bootAt.IsZero() {
		h.bootAt = w.now.Add(time.Duration(w.r.IntN(4)) * tick)
	}
	if !h.Booted {
		// Its credential is renewed until it starts.
		h.JoinBy = w.now.Add(w.in.Limits.JoinTimeout)
	}
	if !h.bootAt.IsZero() && !h.Booted && !h.Deleting && !w.now.Before(h.bootAt) {
		h.Booted, h.exists, h.running, h.kubelet, h.api, h.vip = true, true, true, true, true, true
	}
	w.advanceUpdate(h)
	if w.calm && h.exists && !h.api && !w.local && w.chance(50) {
		h.api = true // No health check notices it, so an administrator starts it.
	}
	if h.Role == Init && h.running && h.of == 0 && w.chance(400) {
		w.init(h)
	}
	h.AtHook = h.Deleting && !h.Released && !w.now.Before(h.drainedAt)
	if h.Released && !w.now.Before(h.destroyAt) {
		w.destroy(h)
	}
}

// advanceUpdate ends the change of a machine in place: its API server starts again,
// also if a step fails, which is repeated.
func (w *world) advanceUpdate(h *host) {
	if !h.UpdateBegun || !h.running || !w.calm && w.chance(300) {
		return
	}
	h.api = true
	if h.updateFails {
		h.UpdateProgress = "a step failed"
		return
	}
	h.Updating, h.UpdateBegun, h.UpdatingSince = false, false, time.Time{}
}

// update begins the change of a machine in place, or crashes halfway.
func (w *world) update(h *host) {
	if h == nil || h.Deleting {
		return
	}
	if !h.Updating {
		if w.in.Replicas > 1 {
			w.checkRedundancy(h)
		}
		if slices.ContainsFunc(w.hosts, func(o *host) bool { return o != h && o.Updating && !o.Deleting }) && !w.acting {
			w.failf("machine %s is changed in place while another one is", h.Name)
		}
		h.UpdatingSince = w.now
	}
	if w.needsReplacement(h) && !w.acting {
		w.failf("machine %s is changed in place although it needs a replacement", h.Name)
	}
	h.Updating, h.UpdateProgress = true, ""
	if !w.calm && w.chance(200) {
		return
	}
	if w.in.KubeadmVersion != w.in.Version && !w.acting {
		w.failf("machine %s is changed in place to %s, but kubeadm would deploy %s", h.Name, w.in.Version, w.in.KubeadmVersion)
	}
	h.UpdateBegun, h.UpdatingSince, h.template, h.Version = true, w.now, w.template, w.in.Version
	h.updateFails = !w.calm && w.chance(200)
	w.endAPI(h)
}

// needsReplacement reports whether a machine differs from the spec in a field that
// a running machine cannot change: each third change has such a field.
func (w *world) needsReplacement(h *host) bool {
	for change := h.template + 1; change <= w.template; change++ {
		if change%3 == 0 {
			return true
		}
	}
	return false
}

// init is a successful kubeadm init.
func (w *world) init(h *host) {
	if !w.calm && w.chance(100) {
		h.running, h.lost = false, true // It failed and does not recover.
		return
	}
	for _, other := range w.hosts {
		if other != h && other.exists && other.of != 0 {
			w.failf("%s initializes while %s is part of another init", h.Name, other.Name)
		}
	}
	if w.initialized && !h.restores {
		w.failf("%s initializes a cluster that is initialized", h.Name)
	}
	w.inits++
	w.nextID++
	w.seen = nil // They were observations of another etcd.
	h.of, h.Node, h.joinedOnce = w.inits, true, true
	if !w.in.ExternalEtcd {
		h.member = w.nextID
		w.etcd = []Member{{ID: h.member, Name: h.Name, Since: w.now, Leader: true}}
	}
}

// destroy deletes the host of a released machine, and its Machine with it.
func (w *world) destroy(h *host) {
	_, _, before := w.quorum()
	h.exists, h.running = false, false
	w.hosts = slices.DeleteFunc(w.hosts, func(o *host) bool { return o == h })
	if _, _, after := w.quorum(); before && !after && h.releasedInUse && h.failuresSeen == w.failures {
		w.failf("machine %s was released and the quorum was lost with it", h.Name)
	}
}

// elect elects a leader among the working members.
func (w *world) elect() {
	_, _, ok := w.quorum()
	leader := -1
	for i, m := range w.etcd {
		if m.Leader && ok && w.up(m.ID) {
			leader = i
		}
	}
	for i := range w.etcd {
		if leader < 0 && ok && !w.etcd[i].Learner && w.up(w.etcd[i].ID) && (w.calm || w.chance(800)) {
			leader = i
		}
		w.etcd[i].Leader = false
	}
	if leader >= 0 {
		w.etcd[leader].Leader = true
	}
}

// join advances one join: etcd accepts one learner at a time, and none beside a
// member that does not respond.
func (w *world) join() {
	if !w.answers() {
		return
	}
	if w.in.ExternalEtcd {
		w.joinExternal()
		return
	}
	voters, healthy, _ := w.quorum()
	for i := range w.etcd {
		if !w.etcd[i].Learner {
			continue
		}
		h := w.on(w.etcd[i].ID)
		switch {
		case h == nil || !h.running || !w.calm && w.chance(300):
		case w.etcd[i].Name == "":
			w.etcd[i].Name = h.Name
		default:
			w.etcd[i].Learner = false
			h.Node, h.joinedOnce = true, true
			w.changes++
		}
		return
	}
	if voters != healthy || w.alarm {
		return
	}
	for _, h := range w.hosts {
		inTime := w.now.Before(h.JoinBy)
		if h.Role == Join && h.running && h.of == 0 && inTime && (w.calm || w.chance(600)) {
			w.nextID++
			h.of, h.member = w.inits, w.nextID
			w.etcd = append(w.etcd, Member{ID: h.member, Since: w.now, Learner: true})
			return
		}
	}
}

// joinExternal advances joins without members.
func (w *world) joinExternal() {
	for _, h := range w.hosts {
		if h.Role == Join && h.running && h.of == 0 && (w.calm || w.chance(600)) {
			h.of, h.Node, h.joinedOnce = w.inits, true, true
			w.changes++
		}
	}
}

// healthCheck marks machines for remediation, as a MachineHealthCheck does.
func (w *world) healthCheck() {
	for _, h := range w.hosts {
		well := h.Node && w.kubeletReports(h)
		since := h.Created.Add(startupTimeout)
		if h.Node {
			if well {
				h.unhealthySince = time.Time{}
			} else if h.unhealthySince.IsZero() {
				h.unhealthySince = w.now
			}
			since = h.unhealthySince.Add(nodeTimeout)
		}
		h.Remediate = ""
		if !well && w.now.After(since) {
			h.Remediate = "its node is not healthy"
		}
		h.Ready = well && h.api
		h.APIServer = w.seenServing(h)
	}
}

// observe observes the world. Responses of the workload cluster get lost or are
// old.
func (w *world) observe() Input {
	in := w.in
	in.Now, in.LockHolder, in.LockSince, in.LastRemediation = w.now, w.lock, w.since, w.last
	w.observed = w.changes
	active := 0
	in.Machines = make([]Machine, 0, len(w.hosts))
	for _, h := range w.hosts {
		m := h.Machine
		m.On = w.nodeOf(h)
		if h.template != w.template {
			m.Differs = []string{"template"}
			if w.needsReplacement(h) {
				m.NeedReplacement = m.Differs
			}
		}
		if !m.Deleting {
			active++
			w.initialized = w.initialized || m.Role == Join && m.Node
		}
		in.Machines = append(in.Machines, m)
	}
	in.EtcdProblem = "no answer"
	_, _, ok := w.quorum()
	answers := w.answers()
	w.answered = answers
	// Members that are reached directly report that the quorum is lost.
	if answers || len(w.etcd) > 0 && !ok && w.chance(500) {
		w.seen = append(w.seen, w.look())
		at := len(w.seen) - 1
		if !w.calm && w.chance(150) {
			at = max(0, at-w.r.IntN(3))
			w.observed = -1
		}
		if w.calm || !w.chance(150) {
			in.Etcd = w.seen[at].etcd
			w.seen = slices.Delete(w.seen, 0, at)
			w.initialized = w.initialized || answers && active > 0
		}
	}
	in.Initialized = w.initialized
	in.Restore, in.Endpoint = w.observeRestore(), w.observeEndpoint()
	w.observation = in
	if w.fenced {
		in.Requirements.Fenced = "another management cluster acts"
	}
	return in
}

func (w *world) look() look {
	l := look{etcd: &Etcd{}, healthy: map[uint64]bool{}, failures: w.failures}
	_, _, ok := w.quorum()
	for _, m := range w.etcd {
		l.healthy[m.ID] = w.up(m.ID)
		m.Healthy = ok && w.up(m.ID)
		if h := w.on(m.ID); h != nil {
			m.Machine = h.Name
			if m.Name == "" && m.ID%3 == 0 {
				m.Machine = "" // Its address is not known yet.
			}
			m.Healthy = m.Healthy && w.reachable(h)
		} else {
			m.Machine = m.Name
		}
		l.etcd.Members = append(l.etcd.Members, m)
	}
	if w.alarm {
		l.etcd.Alarms = []string{"Alarm NOSPACE is raised"}
	}
	return l
}

// act carries a decision out, or crashes before it or halfway.
func (w *world) act(d Decision) {
	w.did[d.Action]++
	if w.traced {
		w.trace = append(w.trace, fmt.Sprintf("%s %s %s", w.now.Format("15:04:05"), d.Action, d.Reason))
	}
	if w.fenced && d.Action != Nothing && d.Action != Wait {
		w.failf("acts although another management cluster does: %s", d.Action)
	}
	if !w.calm && w.chance(50) {
		return
	}
	if w.late == nil && !w.calm && w.chance(15) {
		// Its controller freezes, and another one takes over.
		w.late, w.lateLast, w.lateLock = &d, w.last, w.lock
		w.lateAt = w.now.Add(time.Duration(w.r.IntN(5)) * tick)
		return
	}
	w.carryOut(d)
	if w.late != nil && !w.now.Before(w.lateAt) {
		w.actLate()
	}
}

// actLate is a controller that continues after another one took over. Its
// requests name the observed objects, so they have no effect on others.
func (w *world) actLate() {
	d := *w.late
	w.late = nil
	switch d.Action {
	case Remediate, ReplaceInit:
		if w.last != w.lateLast {
			return // The NovaControlPlane was written since.
		}
	case StartInit:
		if w.lock != w.lateLock {
			return
		}
	case BeginRestore, CreateForRestore, EndRestore, MoveEndpoint:
		return // The init lock, or kube-vip's lease, was written since.
	case RemoveMember, ReleaseHook, DeleteMachine, UpdateMachine, CancelUpdate, CreateMachine, MoveLeader, Nothing, Wait, SetVersion,
		DeleteAll, EndDeletion, DeleteForRestore:
	}
	w.overtaken++
	// Its action does not count against the controller that took over.
	w.acting, w.observed = true, -1
	w.failures++
	w.carryOut(d)
	w.acting = false
	w.changes++
}

// carryOut carries a decision out.
func (w *world) carryOut(d Decision) {
	h := w.find(d.Machine)
	if d.Action == RemoveMember || d.Action == ReleaseHook {
		w.checkRedundancy(h)
		w.checkEndpoint(h, d)
	}
	switch d.Action {
	case CreateMachine:
		w.create(d)
	case StartInit:
		w.startInit(h)
	case DeleteMachine:
		if h != nil {
			w.deleteMachine(h)
		}
	case UpdateMachine:
		w.update(h)
	case CancelUpdate:
		if h != nil && !h.UpdateBegun {
			h.Updating, h.UpdatingSince = false, time.Time{}
		}
	case Remediate, ReplaceInit:
		w.remediate(h, d)
	case ReleaseHook:
		if h != nil {
			h.Released, h.releasedInUse = true, w.initialized
			h.failuresSeen = w.latest().failures
			h.destroyAt = w.now.Add(time.Duration(w.r.IntN(3)) * tick)
		}
	case MoveLeader:
		w.moveLeader(d)
	case RemoveMember:
		if h != nil {
			h.Joined, h.EndpointMove.Failed = true, false
		}
		if w.calm || !w.chance(100) {
			w.remove(d.Member)
		}
	case MoveEndpoint:
		w.moveEndpoint(h, d)
	case BeginRestore, DeleteForRestore, CreateForRestore, EndRestore:
		w.carryOutRestore(d)
	case SetVersion:
		w.in.KubeadmVersion = w.in.Version
	case Nothing, Wait, DeleteAll, EndDeletion:
	}
}

// latest is the observation that the decision is based on.
func (w *world) latest() look {
	if len(w.seen) == 0 {
		return look{}
	}
	return w.seen[0]
}

// checkRedundancy fails if a machine is released that others cannot replace. It
// counts the true state, and of API servers also those whose kubelet does not
// report, unless their hosts refuse connections. A decision on an old
// observation is not checked.
func (w *world) checkRedundancy(h *host) {
	if h == nil || !w.initialized || h.Released || h.SkipRedundancy || w.observed != w.changes {
		return
	}
	w.checked++
	floor := max(1, w.in.Replicas-1)
	voters, serving, unknown := 0, 0, 0
	for _, o := range w.hosts {
		if o == h || o.Released {
			continue
		}
		switch {
		case w.serves(o):
			serving++
		case o.Node && o.APIServer == APIServerUnknown && !w.refusesConnections(o):
			unknown++
		}
		if w.votes(o) && w.reachable(o) {
			voters++
		}
	}
	serves := w.serves(h) && (w.in.ExternalEtcd || w.reachable(h))
	switch {
	case w.votes(h) && w.reachable(h) && voters < floor:
		w.failf("machine %s is released: %d healthy members are left of %d", h.Name, voters, w.in.Replicas)
	case serves && serving == 0:
		w.failf("machine %s is released: it was the last API server that serves", h.Name)
	case serves && serving+unknown < floor:
		w.failf("machine %s is released: %d API servers are left of %d", h.Name, serving+unknown, w.in.Replicas)
	}
}

// checkRemediation fails if a machine is remediated before the last one was
// replaced, or a sole machine repeatedly.
func (w *world) checkRemediation(h *host) {
	if h.Name != w.sole.Name && (h.Replaces == "" || h.Replaces != w.sole.Name && h.Replaces != w.sole.Replaces) {
		// Another machine begins a new count, such as one that a user created by a
		// change of the spec, even if it never joined.
		w.soles = nil
	}
	if !w.initialized || w.observed != w.changes {
		return
	}
	active := 0
	for _, o := range w.hosts {
		if !o.Deleting {
			active++
		}
	}
	unresponsive := slices.ContainsFunc(w.etcd, func(m Member) bool {
		o := w.on(m.ID)
		return !m.Learner && (o == nil || !w.reachable(o))
	})
	if active < w.in.Replicas && !unresponsive && !w.alarm {
		w.failf("machine %s is remediated while %d of %d machines exist", h.Name, active, w.in.Replicas)
	}
	if w.in.Replicas != 1 || w.in.Limits.MaxRetry >= 0 || !h.joinedOnce || h.Name == w.sole.Name {
		return
	}
	w.sole = h.Machine
	w.soles = append(w.soles, w.now)
	if n := len(w.soles) - soleRetries - 2; n >= 0 && w.now.Sub(w.soles[n]) < w.in.Limits.MinHealthyPeriod {
		w.failf("sole machine %s is remediated, the %d. in %s", h.Name, soleRetries+2, w.now.Sub(w.soles[n]))
	}
}

func (w *world) create(d Decision) *host {
	w.count++
	created := &host{
		Machine:  Machine{Name: fmt.Sprintf("m%d", w.count), Created: w.now, Version: w.in.Version, Replaces: d.Replaces},
		template: w.template,
	}
	w.hosts = append(w.hosts, created)
	active := 0
	for _, h := range w.hosts {
		if !h.Deleting {
			active++
		}
	}
	if active > w.in.Replicas+1 && !w.acting {
		w.failf("%d machines exist where %d are wanted", active, w.in.Replicas)
	}
	return created
}

func (w *world) startInit(h *host) {
	if h != nil && h.Role == Undecided && !h.Deleting {
		w.lock, w.since, h.Role = h.Name, w.now, Init
	}
}

func (w *world) remediate(h *host, d Decision) {
	w.last = d.Remediation
	if h == nil || !w.calm && w.chance(100) {
		return
	}
	for _, o := range w.hosts {
		if w.initialized && o != h && o.remediated && o.Deleting && !o.AtHook && !w.acting {
			w.failf("%s is remediated while %s is", h.Name, o.Name)
		}
	}
	if d.Action == Remediate {
		w.checkRemediation(h)
	}
	h.remediated = true
	w.deleteMachine(h)
}

func (w *world) moveLeader(d Decision) {
	_, _, ok := w.quorum()
	at := slices.IndexFunc(w.etcd, func(m Member) bool { return m.ID == d.Target && !m.Learner })
	if !ok || at < 0 || !w.up(d.Target) {
		return
	}
	if h := w.on(d.Member); h == nil || !w.reachable(h) {
		return // Only the leader itself can transfer its leadership.
	}
	for i := range w.etcd {
		w.etcd[i].Leader = i == at
	}
}

// remove removes a member. etcd rejects a removal that would lose the quorum
// because of an event after the observation.
func (w *world) remove(id uint64) {
	at := slices.IndexFunc(w.etcd, func(m Member) bool { return m.ID == id })
	if _, _, ok := w.quorum(); !ok || at < 0 {
		return
	}
	if w.etcd[at].Leader && w.latest().leads(id) && !w.acting {
		w.failf("member %d is removed while it leads", id)
	}
	before := slices.Clone(w.etcd)
	w.etcd = slices.Delete(w.etcd, at, at+1)
	if h := w.on(id); h != nil {
		h.member = 0
	}
	if _, _, ok := w.quorum(); ok {
		return
	}
	if w.latest().failures == w.failures {
		w.failf("member %d is removed and the quorum is lost with it", id)
	}
	w.etcd = before
	for _, h := range w.hosts {
		if h.Name == before[at].Name {
			h.member = id
		}
	}
}

func (l look) leads(id uint64) bool {
	return slices.ContainsFunc(l.etcd.Members, func(m Member) bool { return m.ID == id && m.Leader && m.Healthy })
}
