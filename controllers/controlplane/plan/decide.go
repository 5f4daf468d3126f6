package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// rules are the rules that everything depends on. A test breaks one to show
// that the simulation notices.
type rules struct {
	// mayInit reports whether the init lock may pass on.
	mayInit func(p *problem) bool
	// survives reports whether etcd keeps its quorum without a member.
	survives func(p *problem, remove Member) bool
	// mayVanish reports whether etcd keeps its quorum when the host of a
	// machine without a member goes.
	mayVanish func(p *problem, m Machine) bool
	// oneRemediation reports whether no other remediation is under way.
	oneRemediation func(p *problem) bool
	// needed returns why a machine has to stay until others can replace it.
	needed func(p *problem, m Machine) string
	// replacementFirst reports whether a machine has to be created before the
	// next remediation.
	replacementFirst func(p *problem) bool
	// maxRetry returns how many replacements in a row may fail.
	maxRetry func(p *problem) int
}

func sound() rules {
	return rules{
		mayInit: lockFree, survives: survives, mayVanish: mayVanish, oneRemediation: noRemediation,
		needed: needed, replacementFirst: replacementFirst, maxRetry: maxRetry,
	}
}

// Decide returns what to do next.
func Decide(in Input) Decision {
	return decide(in, sound())
}

// problem is the input and what follows from it at once.
type problem struct {
	Input

	rules rules
	// staying are the machines that nobody deleted, old to new; going are the
	// others.
	staying, going []Machine
	voters         []Member
	// healthy is how many of the voters are, and lasting how many of those are
	// on machines that nobody let go.
	healthy, lasting int
}

func decide(in Input, r rules) Decision {
	p := newProblem(in, r)
	d := p.next()
	if d == nil {
		d = &Decision{Action: Nothing, Reason: "The control plane is as it should be"}
	}
	if due := p.due(); due > 0 && (d.Again == 0 || due < d.Again) {
		d.Again = due
	}
	return *d
}

// next goes through the steps. A remediation that has to wait keeps nothing
// else: what is created or deleted meanwhile may be what it waits for.
func (p *problem) next() *Decision {
	if !p.Initialized {
		return p.spare(start(p))
	}
	if d := etcdKnown(p); d != nil {
		return d
	}
	if !p.ExternalEtcd {
		if d := strayAlarms(p); d != nil {
			return d
		}
		if d := orphanMembers(p); d != nil {
			return d
		}
	}
	if d := releaseHooks(p); d != nil {
		return d
	}
	waiting := remediation(p)
	if waiting != nil && waiting.Action != Wait {
		return waiting
	}
	for _, step := range []func(*problem) *Decision{scaleUp, scaleDown, rollout} {
		if d := step(p); d != nil {
			if waiting != nil && d.Action == Wait {
				return waiting
			}
			return d
		}
	}
	return waiting
}

// due is when time alone changes what is to be done; 0 means never.
func (p *problem) due() time.Duration {
	var first time.Duration
	for _, t := range append(p.rolloutTimes(), p.joinTimes()...) {
		if left := t.Sub(p.Now); left > 0 && (first == 0 || left < first) {
			// A moment later, so that the time is over then.
			first = left + time.Second
		}
	}
	return first
}

// rolloutTimes are when machines become outdated.
func (p *problem) rolloutTimes() []time.Time {
	if !p.Initialized || p.Strategy == OnDelete {
		return nil
	}
	times := []time.Time{p.RolloutAfter}
	window := expiryWindow(p.Input)
	for _, m := range p.staying {
		if window > 0 && !m.CertificatesExpire.IsZero() {
			times = append(times, m.CertificatesExpire.Add(-window))
		}
	}
	return times
}

// joinTimes are when machines and learners have had their time to join.
func (p *problem) joinTimes() []time.Time {
	if holder, ok := p.machine(p.LockHolder); ok && !p.Initialized {
		return []time.Time{p.initBound(holder)}
	}
	if !p.Initialized || p.ExternalEtcd || p.Etcd == nil {
		return nil
	}
	var times []time.Time
	for _, m := range p.Machines {
		if _, has := p.member(m.Name); !has {
			times = append(times, p.joinBound(m))
		}
	}
	for _, m := range p.Etcd.Members {
		if m.Name == "" {
			times = append(times, m.Since.Add(p.Limits.LearnerGrace))
		}
	}
	return times
}

// machine returns the machine of a name.
func (p *problem) machine(name string) (Machine, bool) {
	at := slices.IndexFunc(p.Machines, func(m Machine) bool { return m.Name == name })
	if at < 0 || name == "" {
		return Machine{}, false
	}
	return p.Machines[at], true
}

// member returns the member that runs on a machine.
func (p *problem) member(machine string) (Member, bool) {
	if p.Etcd == nil {
		return Member{}, false
	}
	at := slices.IndexFunc(p.Etcd.Members, func(m Member) bool { return m.Machine == machine })
	if at < 0 {
		return Member{}, false
	}
	return p.Etcd.Members[at], true
}

// deadVoter returns a voter that does not answer.
func (p *problem) deadVoter() (Member, bool) {
	at := slices.IndexFunc(p.voters, func(m Member) bool { return !m.Healthy })
	if at < 0 {
		return Member{}, false
	}
	return p.voters[at], true
}

// draining returns a machine that goes and does not wait for us.
func (p *problem) draining() (Machine, bool) {
	at := slices.IndexFunc(p.going, func(m Machine) bool { return !m.AtHook })
	if at < 0 {
		return Machine{}, false
	}
	return p.going[at], true
}

// replaces is the remediated machine that a new one takes the place of.
func (p *problem) replaces() string {
	if p.LastRemediation == nil {
		return ""
	}
	name := p.LastRemediation.Machine
	for _, m := range p.Machines {
		if m.Replaces == name || m.Name == name && !m.Deleting {
			return ""
		}
	}
	return name
}

func newProblem(in Input, r rules) *problem {
	p := &problem{Input: in, rules: r}
	machines := slices.Clone(in.Machines)
	slices.SortFunc(machines, func(a, b Machine) int {
		return cmp.Or(order(a.Deleting)-order(b.Deleting), a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	at := slices.IndexFunc(machines, func(m Machine) bool { return m.Deleting })
	if at < 0 {
		at = len(machines)
	}
	p.staying, p.going = machines[:at:at], machines[at:]
	// A node that joined tells that there was something to join, also if
	// nobody saw it: it must not be taken away as if nothing were in use.
	p.Initialized = in.Initialized || slices.ContainsFunc(p.staying, func(m Machine) bool { return m.Role == Join && m.Node })
	if in.Etcd == nil || in.ExternalEtcd {
		return p
	}
	for _, m := range in.Etcd.Members {
		if m.Learner {
			continue
		}
		p.voters = append(p.voters, m)
		if m.Healthy {
			p.healthy++
			p.lasting += order(!p.released(m))
		}
	}
	return p
}

// order puts what is true last.
func order(is bool) int {
	if is {
		return 1
	}
	return 0
}
