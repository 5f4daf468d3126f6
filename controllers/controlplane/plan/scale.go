package plan

import (
	"cmp"
	"slices"
)

// scaleUp creates machines that are missing, as many as are: they join one
// after another.
func scaleUp(p *problem) *Decision {
	if len(p.staying) >= p.Replicas {
		return nil
	}
	if m, ok := p.draining(); ok {
		return wait("Waiting for machine %s to be gone", m.Name)
	}
	return p.createOrSetVersion("Creating a machine: %d of %d exist", len(p.staying), p.Replicas)
}

// createOrSetVersion creates a machine if it could join. A newcomer takes the
// version that kubeadm stored, so that one is moved first.
func (p *problem) createOrSetVersion(format string, args ...any) *Decision {
	if m, dead := p.deadVoter(); dead {
		return wait("No machine can join: etcd member %s does not answer", title(m))
	}
	if len(p.Etcd.Alarms) > 0 {
		return wait("No machine can join: %s", p.alarms())
	}
	if why := p.refused(); why != "" {
		return wait("%s", why)
	}
	if p.KubeadmVersion != "" && p.KubeadmVersion != p.Version {
		return &Decision{Action: SetVersion, Reason: "Machines to come run " + p.Version}
	}
	return create(p, format, args...)
}

// scaleDown deletes a machine if there are too many.
func scaleDown(p *problem) *Decision {
	if len(p.staying) <= p.Replicas {
		return nil
	}
	victim := p.victim(p.staying)
	if d := p.unsettled(victim); d != nil {
		return d
	}
	return onMachine(DeleteMachine, victim, "Deleting machine %s: %d machines are wanted", victim.Name, p.Replicas)
}

// victim picks who goes: asked for and outdated, asked for, outdated and not
// ready, outdated, not ready; then from the failure domain with most machines;
// then who is not the leader; then the oldest.
func (p *problem) victim(of []Machine) Machine {
	domains := map[string]int{}
	for _, m := range p.staying {
		domains[m.Domain]++
	}
	rank := func(m Machine) int {
		return 4*order(m.DeleteFirst) + 2*order(len(p.outdated(m)) > 0) + order(!m.Ready)
	}
	leads := func(m Machine) int {
		member, ok := p.member(m.Name)
		return order(ok && member.Leader)
	}
	return slices.MinFunc(of, func(a, b Machine) int {
		return cmp.Or(rank(b)-rank(a), domains[b.Domain]-domains[a.Domain], leads(a)-leads(b), a.Created.Compare(b.Created))
	})
}

// unsettled says what a change that can wait has to wait for. Who goes need
// not be well itself.
func (p *problem) unsettled(victim Machine) *Decision {
	if len(p.Etcd.Alarms) > 0 {
		return wait("Waiting for etcd: %s", p.alarms())
	}
	if len(p.going) > 0 {
		m := p.going[0]
		if m.AtHook {
			return wait("Waiting for machine %s to be gone: %s", m.Name, p.held(m))
		}
		return wait("Waiting for machine %s to be gone", m.Name)
	}
	for _, m := range p.staying {
		if m.Name == victim.Name {
			continue
		}
		if d := p.unwell(p.beside(victim, m)); d != nil {
			return d
		}
	}
	for _, m := range p.Etcd.Members {
		on, ok := p.machine(m.Machine)
		switch {
		case m.Foreign:
			// Somebody's, and no reason to wait for ever.
		case !ok || m.Learner && on.Name != victim.Name:
			return wait("Waiting for etcd member %s", title(m))
		}
	}
	return p.kept(victim)
}

// kept says why a machine cannot be removed although all others are well.
func (p *problem) kept(victim Machine) *Decision {
	if why := p.rules.needed(p, victim); why != "" {
		return wait("Machine %s cannot go: %s", victim.Name, why)
	}
	if member, has := p.member(victim.Name); has && !p.rules.survives(p, member) {
		return wait("Machine %s cannot go: etcd could lose its quorum without it", victim.Name)
	}
	return nil
}

// beside is a machine as it counts when the victim goes. As long as nobody goes
// who is ready, others that are not are not waited for if they are to be replaced
// too: a spec that was mended may be all they lack.
func (p *problem) beside(victim, m Machine) Machine {
	m.Ready = m.Ready || !victim.Ready && len(p.outdated(m)) > 0
	return m
}

// unwell says what a machine lacks.
func (p *problem) unwell(m Machine) *Decision {
	member, has := p.member(m.Name)
	switch {
	case !m.Node:
		return wait("Waiting for machine %s to become a node", m.Name)
	case !has && !p.ExternalEtcd:
		return wait("Waiting for machine %s to join etcd", m.Name)
	case member.Learner:
		return wait("Waiting for etcd member %s to vote", title(member))
	case has && !member.Healthy:
		return wait("Waiting for etcd member %s to answer", title(member))
	case !m.Ready:
		return wait("Waiting for machine %s to be ready", m.Name)
	case p.sickness(m) != "":
		return wait("Waiting for machine %s to be replaced: %s", m.Name, p.sickness(m))
	}
	return nil
}
