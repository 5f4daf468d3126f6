package plan

import (
	"slices"
	"time"
)

// remediation replaces machines that are given up, one at a
// time: first those whose member does not answer, because nobody can join
// beside it, then those that never became nodes, then the others.
func remediation(p *problem) *Decision {
	var sick []Machine
	for _, m := range p.staying {
		if p.sickness(m) != "" {
			sick = append(sick, m)
		}
	}
	if len(sick) == 0 {
		return nil
	}
	slices.SortStableFunc(sick, func(a, b Machine) int { return p.urgency(a) - p.urgency(b) })
	if !p.rules.oneRemediation(p) {
		return wait("Remediation of machine %s waits for another machine to be gone", sick[0].Name)
	}
	if p.rules.replacementFirst(p) {
		return wait("Remediation of machine %s waits for its turn: %d of %d machines exist", sick[0].Name, len(p.staying), p.Replicas)
	}
	// One that has to stay for now keeps nobody else: it may be the others that
	// etcd could count on in vain.
	var first *Decision
	for _, m := range sick {
		d := p.replace(m)
		if d.Action == Remediate {
			return d
		}
		if first == nil || first.Action == Wait && d.Action != Wait {
			first = d
		}
	}
	return first
}

// replacementFirst reports whether machines are missing that could join: the
// replacement of one machine is created before the next one is remediated. None
// can join beside a voter that does not answer, or while an alarm is raised.
func replacementFirst(p *problem) bool {
	_, dead := p.deadVoter()
	return len(p.staying) < p.Replicas && !dead && len(p.Etcd.Alarms) == 0
}

// replace replaces a machine that was given up, if the control plane can do
// without it.
func (p *problem) replace(m Machine) *Decision {
	retries, d := p.mayRetry(m)
	if d != nil {
		return d
	}
	if why := p.rules.needed(p, m); why != "" {
		return p.makeRoom(m, why)
	}
	if member, has := p.member(m.Name); has && !member.Learner && !p.rules.survives(p, member) {
		return p.makeRoom(m, "etcd could lose its quorum without it")
	}
	d = onMachine(Remediate, m, "Replacing machine %s: %s", m.Name, p.sickness(m))
	d.Remediation = &Remediation{Machine: m.Name, At: p.Now, Replaces: m.Replaces, Retries: retries}
	return d
}

// urgency sorts machines for remediation.
func (p *problem) urgency(m Machine) int {
	member, has := p.member(m.Name)
	switch {
	case has && !member.Learner && !member.Healthy:
		return 0
	case !m.Node:
		return 1
	default:
		return 2
	}
}

// makeRoom creates one machine more for a machine that is needed, unless those
// that exist may still become ready.
func (p *problem) makeRoom(m Machine, why string) *Decision {
	blocked := wait("Remediation of machine %s is blocked: %s", m.Name, why)
	if _, going := p.draining(); going || len(p.staying) != p.Replicas || len(p.Etcd.Alarms) > 0 {
		return blocked
	}
	for _, o := range p.staying {
		if p.sickness(o) == "" && p.unwell(o) != nil {
			return blocked
		}
	}
	d := p.createOrSetVersion("Creating a machine: %s is to be replaced, and %s", m.Name, why)
	if d.Action == CreateMachine {
		d.Replaces = m.Name
	}
	return d
}

// noRemediation reports whether no machine is on its way out, remediated or
// not. One that etcd still needs is no reason to wait: only another remediation
// may let it go.
func noRemediation(p *problem) bool {
	_, going := p.draining()
	return !going
}

// sickness is why a machine is to be replaced: a MachineHealthCheck asks for
// it, or it did not initialise the control plane or join etcd in time.
func (p *problem) sickness(m Machine) string {
	_, has := p.member(m.Name)
	switch {
	case m.Remediate != "":
		return m.Remediate
	case !p.Initialized:
		switch {
		case m.Name != p.LockHolder:
		case m.Role == Join:
			return "it was told to join and cannot initialise the control plane"
		case p.initBound(m).Before(p.Now):
			return "it did not initialise the control plane in time"
		}
	case p.ExternalEtcd || p.Etcd == nil || has:
	case m.Joined && !m.Deleting:
		// It was recreated by a move to another management cluster while it was
		// being deleted, and never joins again.
		return "its member was removed from etcd"
	case p.joinBound(m).Before(p.Now):
		return "it did not join etcd in time"
	}
	return ""
}

// initBound is when a machine that holds the lock has had its time.
func (p *problem) initBound(holder Machine) time.Time {
	since := holder.Created
	for _, later := range []time.Time{p.LockSince, holder.Started} {
		if later.After(since) {
			since = later
		}
	}
	return since.Add(p.Limits.JoinBound)
}

const (
	// retriesAtOnce are the retries without a pause of our own.
	retriesAtOnce = 2
	// longestPause is the longest pause between retries.
	longestPause = 30 * time.Minute
)

// pause is the least time from the last remediation to a retry. What failed
// again and again is not likely to get through the next time: each retry waits
// a minute longer, so that it does not wear out the hypervisor.
func (p *problem) pause(last *Remediation) time.Duration {
	own := time.Duration(last.Retries-retriesAtOnce) * time.Minute
	return max(p.Limits.RetryPeriod, min(own, longestPause))
}

// replacesLast reports whether a machine took the place of the one that was
// remediated last. The place of a failed init is taken by whoever initialises
// next.
func (p *problem) replacesLast(m Machine) bool {
	if !p.Initialized && m.Name == p.LockHolder {
		return true
	}
	last := p.LastRemediation
	return m.Replaces != "" && (m.Replaces == last.Machine || m.Replaces == last.Replaces)
}

// soleRetries is how many replacements of a sole machine may fail. A sole machine
// is remediated only while it serves, and a replacement that fails too shows that
// the machine is not the cause.
const soleRetries = 1

// maxRetry returns how many replacements in a row may fail; negative means
// without end.
func maxRetry(p *problem) int {
	if p.Limits.MaxRetry < 0 && p.Initialized && p.Replicas == 1 {
		return soleRetries
	}
	return p.Limits.MaxRetry
}

// mayRetry counts how often the machine's place was remediated in a row, and
// returns what to wait for if that was too often or not long enough ago.
func (p *problem) mayRetry(m Machine) (retries int, d *Decision) {
	last := p.LastRemediation
	if last != nil && last.Machine == m.Name {
		// It was stored and the machine not deleted yet: the same once more.
		return last.Retries, nil
	}
	if last == nil || !p.replacesLast(m) || p.Now.Sub(last.At) >= p.Limits.MinHealthyPeriod {
		return 0, nil
	}
	retries = last.Retries + 1
	if limit := p.rules.maxRetry(p); limit >= 0 && retries > limit {
		d = wait("Remediation of machine %s is stopped: %d replacements failed, which is the limit", m.Name, last.Retries+1)
		d.LimitReached = true
		d.Again = p.Limits.MinHealthyPeriod - p.Now.Sub(last.At)
		return 0, d
	}
	if left := p.pause(last) - p.Now.Sub(last.At); left > 0 {
		d = wait("Waiting for the retry period before machine %s is replaced", m.Name)
		d.Again = left
		return 0, d
	}
	return retries, nil
}
