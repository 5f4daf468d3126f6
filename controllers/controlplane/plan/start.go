package plan

import (
	"slices"
	"strings"
)

// start brings a control plane to its one init. Until that is through nothing
// is in use, so machines come and go freely; only a second init must never be.
func start(p *problem) *Decision {
	if d := p.releaseEarly(); d != nil {
		return d
	}
	var limited *Decision
	for _, m := range p.staying {
		if p.sickness(m) == "" {
			continue
		}
		d := p.replaceEarly(m)
		if d.Action != Wait {
			return d
		}
		limited = d
	}
	if d := p.mendEarly(); d != nil {
		return d
	}
	if holder, ok := p.machine(p.LockHolder); ok && holder.Deleting && !p.rules.mayInit(p) {
		// A machine made now would be told to join what is about to go.
		return wait("Waiting for machine %s to be gone, which was to initialise the control plane", holder.Name)
	}
	if len(p.staying) < p.Replicas {
		return create(p, "Creating a machine: %d of %d exist", len(p.staying), p.Replicas)
	}
	if len(p.staying) > p.Replicas {
		for _, m := range slices.Backward(p.staying) {
			if m.Name != p.LockHolder {
				return onMachine(DeleteMachine, m, "Deleting machine %s: %d machines are wanted", m.Name, p.Replicas)
			}
		}
	}
	if p.rules.mayInit(p) {
		return p.startInit()
	}
	if limited != nil {
		return limited
	}
	return p.awaitInit()
}

// spare keeps all machines until somebody asked the tenant: one that has booted
// may have initialised it while nobody looked, and all of it would go with it.
func (p *problem) spare(d *Decision) *Decision {
	if !p.Unasked || !takesAway(d.Action) || !slices.ContainsFunc(p.Machines, func(m Machine) bool { return m.Booted }) {
		return d
	}
	return wait("Waiting for the tenant to be asked whether it is initialised, before machine %s goes", d.Machine)
}

// takesAway reports whether an action lets a machine go.
func takesAway(a Action) bool {
	return a == ReplaceInit || a == Remediate || a == DeleteMachine || a == ReleaseHook
}

// releaseEarly lets machines go: nobody needs them yet.
func (p *problem) releaseEarly() *Decision {
	for _, m := range p.going {
		if m.AtHook {
			return onMachine(ReleaseHook, m, "Releasing machine %s: the control plane is not initialised", m.Name)
		}
	}
	return nil
}

// mendEarly replaces a machine that differs from the spec before it serves
// anybody: what is wrong with it may be why nothing gets through.
func (p *problem) mendEarly() *Decision {
	if p.Strategy == OnDelete {
		return nil
	}
	for _, m := range p.staying {
		if len(m.Differs) > 0 && !m.Node {
			return onMachine(DeleteMachine, m, "Replacing machine %s, which is no node yet: %s", m.Name, strings.Join(m.Differs, ", "))
		}
	}
	return nil
}

// awaitInit waits for whoever initialises, or makes room for another if that
// one is gone.
func (p *problem) awaitInit() *Decision {
	if holder, ok := p.machine(p.LockHolder); ok {
		return wait("Waiting for machine %s to initialise the control plane", holder.Name)
	}
	return p.clearJoiners()
}

// lockFree reports whether the init lock may pass on: its holder's Machine is
// gone, and so is everyone who may have joined what that one initialised. A
// Machine is gone only after its host.
func lockFree(p *problem) bool {
	for _, m := range p.Machines {
		if m.Name == p.LockHolder || m.Role == Init || m.Node || m.Role == Join && m.Booted {
			return false
		}
	}
	return true
}

// startInit gives the lock to the oldest machine that has no role yet.
func (p *problem) startInit() *Decision {
	for _, m := range p.staying {
		if m.Role == Undecided {
			return onMachine(StartInit, m, "Machine %s initialises the control plane", m.Name)
		}
	}
	if len(p.staying) > 0 {
		m := p.staying[0]
		return onMachine(DeleteMachine, m, "Deleting machine %s: none is left that could initialise the control plane", m.Name)
	}
	return wait("Waiting for replicas to be more than 0")
}

// clearJoiners takes machines away that may have joined what a holder that is
// gone had initialised: beside a new init they would be a second cluster.
func (p *problem) clearJoiners() *Decision {
	for _, m := range p.staying {
		if m.Role == Init {
			return wait("Waiting for the tenant to answer: machine %s may have initialised it", m.Name)
		}
		if m.Role == Join && m.Booted {
			return onMachine(DeleteMachine, m, "Deleting machine %s: it may have joined what failed to initialise", m.Name)
		}
	}
	if len(p.going) > 0 {
		return wait("Waiting for machine %s to be gone", p.going[0].Name)
	}
	return wait("Waiting for the control plane to be initialised")
}

// replaceEarly replaces a machine that failed before the init was through.
func (p *problem) replaceEarly(m Machine) *Decision {
	retries, d := p.mayRetry(m)
	if d != nil {
		return d
	}
	action := Remediate
	if m.Name == p.LockHolder {
		action = ReplaceInit
	}
	d = onMachine(action, m, "Replacing machine %s: %s", m.Name, p.sickness(m))
	d.Remediation = &Remediation{Machine: m.Name, At: p.Now, Retries: retries}
	return d
}
