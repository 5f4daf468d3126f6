package plan

import "strings"

// maxKubeletSkew is the maximum number of minor versions between an API server
// and an older kubelet.
const maxKubeletSkew = 3

// rollout changes or replaces machines that differ from the spec, one at a time.
func rollout(p *problem) *Decision {
	old := comeFirst(p, outdatedMachines(p))
	if p.RolloutPaused && len(old) > 0 {
		return wait("spec.rollout.paused is true")
	}
	if d, inPlace := update(p, old); inPlace {
		return d
	}
	if len(old) == 0 || p.Strategy == OnDelete {
		return waitForActive(p)
	}
	victim := p.victim(old)
	why := strings.Join(p.outdated(victim), ", ")
	if _, has := p.member(victim.Name); !has && !victim.Node && p.rules.needed(p, victim) == "" {
		// The machine is not in use and may never be: no replacement has to be
		// created first.
		return onMachine(DeleteMachine, victim, "Replacing machine %s, which is not a node yet: %s", victim.Name, why)
	}
	if refused := p.joinRefused(); refused != "" {
		// This holds also if the old machine is deleted first: no replacement
		// could join.
		return wait("%s", refused)
	}
	if p.surge() == 0 {
		if d := p.waitForStable(victim); d != nil {
			return d
		}
		return onMachine(DeleteMachine, victim, "Replacing machine %s: %s", victim.Name, why)
	}
	if d := p.waitForStable(Machine{}); d != nil {
		return d
	}
	return p.createOrSetVersion("Creating a machine to replace %s: %s", victim.Name, why)
}

// waitForActive waits for changes in progress if no new change is needed.
func waitForActive(p *problem) *Decision {
	// No machine is being replaced, so the plan waits for every machine that is
	// not ready.
	return p.waitForStable(Machine{Ready: true})
}

// surge returns how many additional machines a rollout creates. A sole machine
// cannot be deleted before its replacement exists.
func (p *problem) surge() int {
	if p.Replicas == 1 {
		return 1
	}
	return p.MaxSurge
}
