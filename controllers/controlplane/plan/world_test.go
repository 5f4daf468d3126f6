package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	tick = 30 * time.Second
	// startup and patience are when a MachineHealthCheck gives a machine up
	// that is no node yet, or whose node is not ready.
	startup  = 20 * tick
	patience = 4 * tick
)

// host is a machine, what runs on it and what is true of it, seen or not.
type host struct {
	Machine

	template int
	// running is true while the host runs; lost ones never run again.
	running, lost bool
	// kubelet is true while the kubelet answers.
	kubelet bool
	// exists is true from the clone until the host is destroyed.
	exists bool
	bootAt time.Time
	// member is its member's ID, 0 without one; of is the init that it is part
	// of, also after the member was removed.
	member, of uint64
	sickSince  time.Time
	drainedAt  time.Time
	// releasedInUse is true if the hook was released when the control plane
	// was known to be initialised, after so many failures.
	releasedInUse bool
	failuresSeen  int
	destroyAt     time.Time
	remediated    bool
}

// world is a model of a control plane: the truth that is observed in parts.
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

	// What was noted down outside of the machines.
	initialized bool
	last        *Remediation

	in       Input
	template int
	// failures counts what fate broke.
	failures int
	// seen are older looks at etcd.
	seen []look
	// faulty is how often something breaks, in 1/1000 for each tick and host.
	faulty int

	broken string
	did    map[Action]int
	// tell makes it keep a trace.
	tell  bool
	trace []string
}

// look is one look at etcd and the truth at that time.
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
		Replicas: []int{1, 3, 5}[r.IntN(3)], Version: "v1.36.3", MaxSurge: r.IntN(2),
		Limits: Limits{
			MaxRetry: -1, RetryPeriod: time.Duration(r.IntN(5)) * tick, MinHealthyPeriod: time.Hour,
			JoinBound: 35 * time.Minute, LearnerGrace: 2 * time.Minute,
		},
	}
	if r.IntN(3) == 0 {
		w.in.Limits.MaxRetry = r.IntN(3)
	}
	return w
}

// chance is true in so many of 1000 cases.
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

// quorum counts the voters and those of them that work.
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

// step lets half a minute pass.
func (w *world) step() {
	w.now = w.now.Add(tick)
	if !w.calm {
		w.fate()
	}
	for _, h := range slices.Clone(w.hosts) {
		w.live(h)
	}
	w.elect()
	w.healthCheck()
	w.join()
}

// fate breaks things.
func (w *world) fate() {
	for _, h := range w.hosts {
		if !h.exists || !w.chance(w.faulty) {
			continue
		}
		switch w.r.IntN(4) {
		case 0:
			h.lost, h.running = true, false
		case 1:
			h.running = false
		default:
			h.kubelet = false
		}
		w.failures++
	}
	for _, h := range w.hosts {
		if h.exists && !h.lost && w.chance(150) {
			h.running, h.kubelet = true, true
		}
	}
	if w.chance(5) {
		w.alarm = !w.alarm
	}
}

// users change their minds.
func (w *world) users() {
	switch w.r.IntN(60) {
	case 0:
		w.in.Replicas = []int{1, 3, 5}[w.r.IntN(3)]
	case 1:
		w.template++
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

// live moves one host on: cloned, told what to be, booted, destroyed.
func (w *world) live(h *host) {
	if h.Role == Undecided && !h.Deleting && h.Name != w.lock && (w.initialized || w.find(w.lock) != nil) && w.chance(700) {
		h.Role = Join
	}
	if h.Role != Undecided && !h.exists && !h.Deleting && h.bootAt.IsZero() {
		h.bootAt = w.now.Add(time.Duration(w.r.IntN(4)) * tick)
	}
	if !h.Booted {
		// Its credential is renewed until it starts.
		h.JoinBy = w.now.Add(w.in.Limits.JoinBound)
	}
	if !h.bootAt.IsZero() && !h.Booted && !h.Deleting && !w.now.Before(h.bootAt) {
		h.Booted, h.exists, h.running, h.kubelet = true, true, true, true
	}
	if h.Role == Init && h.running && h.of == 0 && w.chance(400) {
		w.init(h)
	}
	h.AtHook = h.Deleting && !h.Released && !w.now.Before(h.drainedAt)
	if h.Released && !w.now.Before(h.destroyAt) {
		w.destroy(h)
	}
}

// init is kubeadm init getting through.
func (w *world) init(h *host) {
	if !w.calm && w.chance(100) {
		h.running, h.lost = false, true // It failed, and nobody mends it.
		return
	}
	for _, other := range w.hosts {
		if other != h && other.exists && other.of != 0 {
			w.failf("%s initialises while %s is part of another init", h.Name, other.Name)
		}
	}
	if w.initialized {
		w.failf("%s initialises what is initialised", h.Name)
	}
	w.inits++
	w.nextID++
	h.of, h.member = w.inits, w.nextID
	w.etcd = []Member{{ID: h.member, Name: h.Name, Since: w.now, Leader: true}}
	h.Node = true
}

// destroy takes a host that was released away, and its Machine with it.
func (w *world) destroy(h *host) {
	_, _, before := w.quorum()
	h.exists, h.running = false, false
	w.hosts = slices.DeleteFunc(w.hosts, func(o *host) bool { return o == h })
	if _, _, after := w.quorum(); before && !after && h.releasedInUse && h.failuresSeen == w.failures {
		w.failf("machine %s was let go and took the quorum with it", h.Name)
	}
}

// elect finds a leader among those that work.
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

// join lets one joiner go on: etcd takes one learner at a time, and none
// beside a member that does not answer.
func (w *world) join() {
	voters, healthy, ok := w.quorum()
	if !ok {
		return
	}
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
			h.Node = true
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

// healthCheck is what a MachineHealthCheck asks for.
func (w *world) healthCheck() {
	for _, h := range w.hosts {
		well := h.Node && h.running && h.kubelet
		since := h.Created.Add(startup)
		if h.Node {
			if well {
				h.sickSince = time.Time{}
			} else if h.sickSince.IsZero() {
				h.sickSince = w.now
			}
			since = h.sickSince.Add(patience)
		}
		h.Remediate = ""
		if !well && w.now.After(since) {
			h.Remediate = "its node is not well"
		}
		h.Ready = well
	}
}

// observe looks at the world. Answers of the tenant get lost or are old.
func (w *world) observe() Input {
	in := w.in
	in.Now, in.LockHolder, in.LockSince, in.LastRemediation = w.now, w.lock, w.since, w.last
	staying := 0
	in.Machines = make([]Machine, 0, len(w.hosts))
	for _, h := range w.hosts {
		m := h.Machine
		if h.template != w.template {
			m.Differs = []string{"template"}
		}
		if !m.Deleting {
			staying++
			w.initialized = w.initialized || m.Role == Join && m.Node
		}
		in.Machines = append(in.Machines, m)
	}
	in.Silence = "no answer"
	_, _, ok := w.quorum()
	if ok || len(w.etcd) > 0 && w.chance(500) {
		w.seen = append(w.seen, w.look())
		at := len(w.seen) - 1
		if !w.calm && w.chance(150) {
			at = max(0, at-w.r.IntN(3))
		}
		if w.calm || !w.chance(150) {
			in.Etcd = w.seen[at].etcd
			w.seen = slices.Delete(w.seen, 0, at)
			w.initialized = w.initialized || ok && staying > 0
		}
	}
	in.Initialized = w.initialized
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
			// It is asked through the kubelet.
			m.Healthy = m.Healthy && h.kubelet
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

// act carries a decision out, or dies before it or halfway.
func (w *world) act(d Decision) {
	w.did[d.Action]++
	if w.tell {
		w.trace = append(w.trace, fmt.Sprintf("%s %s %s", w.now.Format("15:04:05"), d.Action, d.Reason))
	}
	if !w.calm && w.chance(50) {
		return
	}
	h := w.find(d.Machine)
	switch d.Action {
	case CreateMachine:
		w.create(d)
	case StartInit:
		w.startInit(h)
	case DeleteMachine:
		if h != nil {
			w.deleteMachine(h)
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
			h.Joined = true
		}
		if w.calm || !w.chance(100) {
			w.remove(d.Member)
		}
	case Nothing, Wait, SetVersion:
	}
}

// latest is the look that the decision was made on.
func (w *world) latest() look {
	if len(w.seen) == 0 {
		return look{}
	}
	return w.seen[0]
}

func (w *world) create(d Decision) {
	w.count++
	w.hosts = append(w.hosts, &host{
		Machine:  Machine{Name: fmt.Sprintf("m%d", w.count), Created: w.now, Version: w.in.Version, Replaces: d.Replaces},
		template: w.template,
	})
	staying := 0
	for _, h := range w.hosts {
		if !h.Deleting {
			staying++
		}
	}
	if staying > w.in.Replicas+1 {
		w.failf("%d machines stay where %d are wanted", staying, w.in.Replicas)
	}
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
		if w.initialized && o != h && o.remediated && o.Deleting && !o.AtHook {
			w.failf("%s is remediated while %s is", h.Name, o.Name)
		}
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
	if h := w.on(d.Member); h == nil || !h.kubelet {
		return // Only the leader itself can do it.
	}
	for i := range w.etcd {
		w.etcd[i].Leader = i == at
	}
}

// remove takes a member out. etcd refuses what would cost the quorum because
// of something that happened after the decision's look.
func (w *world) remove(id uint64) {
	at := slices.IndexFunc(w.etcd, func(m Member) bool { return m.ID == id })
	if _, _, ok := w.quorum(); !ok || at < 0 {
		return
	}
	if w.etcd[at].Leader && w.latest().leads(id) {
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
		w.failf("member %d is removed and the quorum with it", id)
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
