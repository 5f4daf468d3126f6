package plan

import (
	"strings"
)

// updating waits for the machine that is being changed in place: no other machine
// is changed before, and for a limited time none is added or removed. A change
// whose begin was interrupted is continued.
func updating(p *problem) *Decision {
	for _, m := range p.active {
		switch {
		case !m.Updating:
		case !m.UpdateBegun:
			return onMachine(UpdateMachine, m, "Changing machine %s in place", m.Name)
		case !updateLate(p.Input, m):
			return waitForUpdate(m)
		}
	}
	return nil
}

func waitForUpdate(m Machine) *Decision {
	if m.UpdateProgress == "" {
		return wait("Waiting for Cluster API to change machine %s in place", m.Name)
	}
	return wait("Waiting for machine %s to be changed in place: %s", m.Name, m.UpdateProgress)
}

// update changes the first outdated machine in place. It returns false if a
// machine has to be replaced, or none is changed.
func update(p *problem, old []Machine) (*Decision, bool) {
	switch p.InPlace {
	case Prefer:
	case Only:
		if d := refuse(p, old); d != nil {
			return d, true
		}
	case Never, "":
		return nil, false
	}
	if len(old) == 0 || p.Strategy == OnDelete {
		return nil, false
	}
	victim := p.victim(old)
	if !inUse(p, victim) || !onlyDiffers(p, victim) || len(victim.NeedReplacement) > 0 || p.InPlace == Prefer && p.Replicas == 1 {
		return nil, false
	}
	if refused := p.joinRefused(); refused != "" {
		// The components read their settings where new machines read them.
		return wait("%s", refused), true
	}
	blocked := p.waitForStable(victim)
	if p.Replicas == 1 {
		// Its API server is the only one.
		blocked = p.waitForStable(Machine{})
	}
	if blocked != nil {
		return blocked, true
	}
	return onMachine(UpdateMachine, victim, "Changing machine %s in place: %s", victim.Name, strings.Join(victim.Differs, ", ")), true
}

// refuse returns why no machine is changed with Only: a change does not end, or a
// field needs another machine.
func refuse(p *problem, old []Machine) *Decision {
	for _, m := range p.active {
		if m.Updating {
			return waitForUpdate(m)
		}
	}
	for _, m := range old {
		if inUse(p, m) && onlyDiffers(p, m) && len(m.NeedReplacement) > 0 {
			return wait("No machine is changed, because these fields of machine %s need another machine: %s. Revert them, or set spec.rollout.inPlace to Prefer",
				m.Name, strings.Join(m.NeedReplacement, ", "))
		}
	}
	return nil
}

// inUse reports whether a machine is a node and a member of etcd.
func inUse(p *problem, m Machine) bool {
	_, has := p.member(m.Name)
	return m.Node && (has || p.ExternalEtcd)
}

// onlyDiffers reports whether a machine is outdated only because it differs from
// the spec.
func onlyDiffers(p *problem, m Machine) bool { return len(p.outdated(m)) == len(m.Differs) }
