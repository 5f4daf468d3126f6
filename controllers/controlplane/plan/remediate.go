package plan

import (
	"slices"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// remediation replaces machines that need remediation, one at a time: first
// those whose member does not respond, because no machine can join beside it,
// then those that never became nodes, then the others.
func remediation(p *problem) *Decision {
	var unhealthy []Machine
	for _, m := range p.active {
		if p.unhealthyReason(m) != "" {
			unhealthy = append(unhealthy, m)
		}
	}
	if len(unhealthy) == 0 {
		return nil
	}
	slices.SortStableFunc(unhealthy, func(a, b Machine) int { return p.remediationPriority(a) - p.remediationPriority(b) })
	if !p.rules.oneRemediation(p) {
		return wait("Remediation of machine %s waits for another machine to be deleted", unhealthy[0].Name)
	}
	if p.rules.replacementFirst(p) {
		return wait("Remediation of machine %s waits for the replacement of another machine: %d of %d machines exist", unhealthy[0].Name, len(p.active), p.Replicas)
	}
	// A machine that has to stay for now does not block the others: it may be
	// the only one of them that etcd needs.
	var first *Decision
	for _, m := range unhealthy {
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

// replacementFirst reports whether a machine that could join is missing: the
// replacement of one machine is created before the next one is remediated. No
// machine can join beside a voter that does not respond, or while an alarm is
// raised.
func replacementFirst(p *problem) bool {
	_, unresponsive := p.unhealthyVoter()
	return len(p.active) < p.Replicas && !unresponsive && len(p.Etcd.Alarms) == 0
}

// replace remediates a machine if the control plane keeps its redundancy and
// quorum without it.
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
	d = onMachine(Remediate, m, "Replacing machine %s: %s", m.Name, p.unhealthyReason(m))
	d.Remediation = &Remediation{Machine: m.Name, At: p.Now, Replaces: m.Replaces, Retries: retries}
	return d
}

// remediationPriority sorts machines for remediation.
func (p *problem) remediationPriority(m Machine) int {
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

// makeRoom creates one additional machine before a needed machine is
// remediated, unless the existing machines may still become ready.
func (p *problem) makeRoom(m Machine, why string) *Decision {
	blocked := wait("Remediation of machine %s is blocked: %s", m.Name, why)
	if _, deleting := p.draining(); deleting || len(p.active) != p.Replicas || len(p.Etcd.Alarms) > 0 {
		return blocked
	}
	for _, o := range p.active {
		if p.unhealthyReason(o) == "" && p.waitForHealthy(o) != nil {
			return blocked
		}
	}
	d := p.createOrSetVersion("Creating a machine: %s has to be replaced, and %s", m.Name, why)
	if d.Action == CreateMachine {
		d.Replaces = m.Name
	}
	return d
}

// noRemediation reports whether no machine is being deleted, remediated or not.
// A machine at our hook does not count: etcd may still need it, and only
// another remediation may allow its deletion.
func noRemediation(p *problem) bool {
	_, deleting := p.draining()
	return !deleting
}

const (
	// retriesAtOnce is the number of retries without an additional pause.
	retriesAtOnce = 2
)

// pause returns the minimum time from the last remediation to a retry. A
// machine that failed several times is likely to fail again: each retry waits
// one minute longer, to limit the load on the hypervisor.
func (p *problem) pause(last *Remediation) time.Duration {
	own := time.Duration(last.Retries-retriesAtOnce) * time.Minute
	return max(p.Limits.RetryPeriod, min(own, timelimits.MaxRemediationPause))
}

// replacesLast reports whether a machine replaced the one that was remediated
// last. After a failed init that is the next holder of the init lock.
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

// maxRetry returns how many replacements in a row may fail; negative means no
// limit.
func maxRetry(p *problem) int {
	if p.Limits.MaxRetry < 0 && p.Initialized && p.Replicas == 1 {
		return soleRetries
	}
	return p.Limits.MaxRetry
}

// mayRetry counts how often the machine's predecessors were remediated in a
// row. It returns a decision to wait if the limit is reached or the last retry
// is too recent.
func (p *problem) mayRetry(m Machine) (retries int, d *Decision) {
	last := p.LastRemediation
	if last != nil && last.Machine == m.Name {
		// The remediation was stored, but the machine was not deleted yet:
		// repeat it.
		return last.Retries, nil
	}
	if last == nil || !p.replacesLast(m) || p.Now.Sub(last.At) >= p.Limits.MinHealthyPeriod {
		return 0, nil
	}
	retries = last.Retries + 1
	if limit := p.rules.maxRetry(p); limit >= 0 && retries > limit {
		d = wait("Remediation of machine %s is stopped: %d replacements failed, which is the limit", m.Name, last.Retries+1)
		d.LimitReached = true
		d.RequeueAfter = p.Limits.MinHealthyPeriod - p.Now.Sub(last.At)
		return 0, d
	}
	if left := p.pause(last) - p.Now.Sub(last.At); left > 0 {
		d = wait("Waiting for the retry period before machine %s is replaced", m.Name)
		d.RequeueAfter = left
		return 0, d
	}
	return retries, nil
}
