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
	// discardFirst reports whether all other machines are deleted before the
	// machine that restores is created.
	discardFirst func(p *problem) bool
	// endpointFirst moves the endpoint's address off a machine before the machine
	// is deleted.
	endpointFirst func(p *problem, d *Decision) *Decision
	// requirements decides whatever does not depend on machines.
	requirements func(p *problem) *Decision
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

// order sorts true after false.
func order(is bool) int {
	if is {
		return 1
	}
	return 0
}

// released reports whether the host of a member may be deleted at any moment.
func (p *problem) released(m Member) bool {
	on, ok := p.machine(m.Machine)
	return ok && on.Released
}

// joinDeadline returns when the time of a machine to join ends. A join that starts
// at the last moment takes a little longer.
func (p *problem) joinDeadline(m Machine) time.Time {
	if !m.JoinBy.IsZero() {
		return m.JoinBy.Add(p.Limits.LearnerGrace)
	}
	return m.Created.Add(p.Limits.JoinTimeout + p.Limits.LearnerGrace)
}

// outdated returns why a machine is to be replaced.
func (p *problem) outdated(m Machine) []string { return Outdated(p.Input, m) }

// unhealthyReason returns why a machine is to be replaced: a MachineHealthCheck
// requested it, or the machine did not initialize the control plane or join
// etcd in time.
func (p *problem) unhealthyReason(m Machine) string {
	_, has := p.member(m.Name)
	switch {
	case m.Remediate != "":
		return m.Remediate
	case !p.Initialized:
		switch {
		case m.Name != p.LockHolder:
		case m.Role == Join:
			return "it was configured to join and cannot initialize the control plane"
		case p.initDeadline(m).Before(p.Now):
			return "it did not initialize the control plane in time"
		}
	case p.ExternalEtcd || p.Etcd == nil || has:
	case m.Joined && !m.Deleting:
		// It was recreated by a move to another management cluster while it was
		// being deleted, and never joins again.
		return "its member was removed from etcd"
	case p.joinDeadline(m).Before(p.Now):
		return "it did not join etcd in time"
	}
	return ""
}

// initDeadline returns when the time of the lock holder to initialize ends.
func (p *problem) initDeadline(holder Machine) time.Time {
	since := holder.Created
	for _, later := range []time.Time{p.LockSince, holder.Started} {
		if later.After(since) {
			since = later
		}
	}
	return since.Add(p.Limits.JoinTimeout)
}
