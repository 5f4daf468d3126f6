package plan

import (
	"time"
)

func defaultRules() rules {
	return rules{
		mayInit: lockFree, survives: survives, mayRelease: mayRelease, oneRemediation: noRemediation,
		needed: needed, replacementFirst: replacementFirst, maxRetry: maxRetry, discardFirst: discardFirst, endpointFirst: endpointFirst, requirements: requirements,
	}
}

// Decide returns the next action.
func Decide(in Input) Decision {
	return decide(in, defaultRules())
}

func decide(in Input, r rules) Decision {
	p := newProblem(in, r)
	for _, first := range []func(*problem) *Decision{r.requirements, restore} {
		if d := first(p); d != nil {
			return *d
		}
	}
	d := next(p)
	if d == nil {
		d = &Decision{Action: Nothing, Reason: "The control plane matches its spec"}
	}
	d = p.rules.endpointFirst(p, d)
	d.Upkeep = KeepAll
	if due := due(p); due > 0 && (d.RequeueAfter == 0 || due < d.RequeueAfter) {
		d.RequeueAfter = due
	}
	return *d
}

// next runs the steps in order. A remediation that has to wait does not block
// the other steps: it may wait for a machine that one of them creates or
// deletes.
func next(p *problem) *Decision {
	if !p.Initialized {
		return guardUnknownInit(p, start(p))
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
	for _, step := range []func(*problem) *Decision{updating, scaleUp, scaleDown, rollout} {
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
func due(p *problem) time.Duration {
	var first time.Duration
	for _, t := range append(rolloutTimes(p), joinTimes(p)...) {
		if left := t.Sub(p.Now); left > 0 && (first == 0 || left < first) {
			// One second later, so that the time has passed by then.
			first = left + time.Second
		}
	}
	return first
}

// rolloutTimes returns when machines become outdated.
func rolloutTimes(p *problem) []time.Time {
	if !p.Initialized || p.Strategy == OnDelete {
		return nil
	}
	times := []time.Time{p.RolloutAfter}
	window := expiryWindow(p.Input)
	for _, m := range p.active {
		if m.Updating {
			times = append(times, updateDeadline(p.Input, m))
		}
		if window > 0 && !m.CertificatesExpire.IsZero() {
			times = append(times, m.CertificatesExpire.Add(-window))
		}
	}
	return times
}

// joinTimes returns when the join timeouts of machines and learners end.
func joinTimes(p *problem) []time.Time {
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

// UnhealthyReason returns why a machine is to be remediated, for users; empty if it is
// healthy.
func UnhealthyReason(in Input, m Machine) string {
	return newProblem(in, defaultRules()).unhealthyReason(m)
}
