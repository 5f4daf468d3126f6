package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// rules are the rules that every decision depends on. A test replaces one of
// them to show that the simulation notices.
type rules struct {
	// mayInit reports whether the init lock may move to another machine.
	mayInit func(p *problem) bool
	// survives reports whether etcd keeps its quorum without a member.
	survives func(p *problem, remove Member) bool
	// mayRelease reports whether etcd keeps its quorum when the host of a
	// machine without a member is deleted.
	mayRelease func(p *problem, m Machine) bool
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

func defaultRules() rules {
	return rules{
		mayInit: lockFree, survives: survives, mayRelease: mayRelease, oneRemediation: noRemediation,
		needed: needed, replacementFirst: replacementFirst, maxRetry: maxRetry,
	}
}

// Decide returns the next action.
func Decide(in Input) Decision {
	return decide(in, defaultRules())
}

// problem is the input and the values derived from it.
type problem struct {
	Input

	rules rules
	// active are the machines without a deletion timestamp, old to new; deleting
	// are the machines with one.
	active, deleting []Machine
	voters           []Member
	// healthy is the number of healthy voters. healthyUnreleased is the number of healthy
	// voters whose machines are not released.
	healthy, healthyUnreleased int
}

func decide(in Input, r rules) Decision {
	p := newProblem(in, r)
	d := p.next()
	if d == nil {
		d = &Decision{Action: Nothing, Reason: "The control plane matches its spec"}
	}
	if due := p.due(); due > 0 && (d.RequeueAfter == 0 || due < d.RequeueAfter) {
		d.RequeueAfter = due
	}
	return *d
}

// next runs the steps in order. A remediation that has to wait does not block
// the other steps: it may wait for a machine that one of them creates or
// deletes.
func (p *problem) next() *Decision {
	if !p.Initialized {
		return p.guardUnknownInit(start(p))
	}
	if d := waitForEtcd(p); d != nil {
		return d
	}
	if !p.ExternalEtcd {
		if d := clearOrphanedAlarms(p); d != nil {
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

// due returns when the decision may change with time alone; 0 means never.
func (p *problem) due() time.Duration {
	var first time.Duration
	for _, t := range append(p.rolloutTimes(), p.joinTimes()...) {
		if left := t.Sub(p.Now); left > 0 && (first == 0 || left < first) {
			// One second later, so that the time has passed by then.
			first = left + time.Second
		}
	}
	return first
}

// rolloutTimes returns when machines become outdated.
func (p *problem) rolloutTimes() []time.Time {
	if !p.Initialized || p.Strategy == OnDelete {
		return nil
	}
	times := []time.Time{p.RolloutAfter}
	window := expiryWindow(p.Input)
	for _, m := range p.active {
		if window > 0 && !m.CertificatesExpire.IsZero() {
			times = append(times, m.CertificatesExpire.Add(-window))
		}
	}
	return times
}

// joinTimes returns when the join timeouts of machines and learners end.
func (p *problem) joinTimes() []time.Time {
	if holder, ok := p.machine(p.LockHolder); ok && !p.Initialized {
		return []time.Time{p.initDeadline(holder)}
	}
	if !p.Initialized || p.ExternalEtcd || p.Etcd == nil {
		return nil
	}
	var times []time.Time
	for _, m := range p.Machines {
		if _, has := p.member(m.Name); !has {
			times = append(times, p.joinDeadline(m))
		}
	}
	for _, m := range p.Etcd.Members {
		if m.Name == "" {
			times = append(times, m.Since.Add(p.Limits.LearnerGrace))
		}
	}
	return times
}

// machine returns the machine with a name.
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

// unhealthyVoter returns a voter that does not respond.
func (p *problem) unhealthyVoter() (Member, bool) {
	at := slices.IndexFunc(p.voters, func(m Member) bool { return !m.Healthy })
	if at < 0 {
		return Member{}, false
	}
	return p.voters[at], true
}

// draining returns a machine that is being deleted and does not wait at our
// hook.
func (p *problem) draining() (Machine, bool) {
	at := slices.IndexFunc(p.deleting, func(m Machine) bool { return !m.AtHook })
	if at < 0 {
		return Machine{}, false
	}
	return p.deleting[at], true
}

// replaces returns the remediated machine whose replacement is to be created.
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
	p.active, p.deleting = machines[:at:at], machines[at:]
	// A node that joined proves that kubeadm init succeeded, even if the
	// controller did not observe it. Its machine must not be deleted as if the
	// cluster were not in use.
	p.Initialized = in.Initialized || slices.ContainsFunc(p.active, func(m Machine) bool { return m.Role == Join && m.Node })
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
			p.healthyUnreleased += order(!p.released(m))
		}
	}
	return p
}

// order sorts true after false.
func order(is bool) int {
	if is {
		return 1
	}
	return 0
}
