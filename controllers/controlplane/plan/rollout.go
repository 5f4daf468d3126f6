package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// maxKubeletSkew is how many minor versions a kubelet may be behind.
const maxKubeletSkew = 3

// rollout replaces machines that differ from the spec, one at a time.
func rollout(p *problem) *Decision {
	var old []Machine
	for _, m := range p.staying {
		if len(p.outdated(m)) > 0 {
			old = append(old, m)
		}
	}
	if len(old) == 0 || p.Strategy == OnDelete {
		return settle(p)
	}
	victim := p.victim(old)
	why := strings.Join(p.outdated(victim), ", ")
	if _, has := p.member(victim.Name); !has && !victim.Node && p.rules.needed(p, victim) == "" {
		// It serves nobody, and may never do: no need to make room for it.
		return onMachine(DeleteMachine, victim, "Replacing machine %s, which is no node yet: %s", victim.Name, why)
	}
	if refused := p.refused(); refused != "" {
		// Also where an old machine would go first: nobody could follow it.
		return wait("%s", refused)
	}
	if p.surge() == 0 {
		if d := p.unsettled(victim); d != nil {
			return d
		}
		return onMachine(DeleteMachine, victim, "Replacing machine %s: %s", victim.Name, why)
	}
	if d := p.unsettled(Machine{}); d != nil {
		return d
	}
	return p.createOrSetVersion("Creating a machine to replace %s: %s", victim.Name, why)
}

// settle waits for what still goes on when nothing is to be begun.
func settle(p *problem) *Decision {
	// Nobody is being replaced, so whoever is not ready is waited for.
	return p.unsettled(Machine{Ready: true})
}

// surge is how many machines more a rollout makes. The only machine cannot go
// before another is there.
func (p *problem) surge() int {
	if p.Replicas == 1 {
		return 1
	}
	return p.MaxSurge
}

// outdated says why a machine is to be replaced.
func (p *problem) outdated(m Machine) []string { return Outdated(p.Input, m) }

// refused says why no machine may be made that others are to make room for.
func (p *problem) refused() string {
	if why := p.versionRefused(); why != "" {
		return why
	}
	if p.NoJoin != "" {
		return "No machine can join: " + p.NoJoin
	}
	return ""
}

// versionRefused says why no machine of the wanted version may join: a control
// plane moves up one minor version at a time, and kubelets may be three behind.
func (p *problem) versionRefused() string {
	want, ok := minor(p.Version)
	if !ok {
		return ""
	}
	for _, m := range p.staying {
		is, ok := minor(m.Version)
		switch {
		case !ok:
		case want > is+1:
			return fmt.Sprintf("Version %s is more than one minor version above %s of machine %s: go through the one between", p.Version, m.Version, m.Name)
		case want < is && m.Node:
			return fmt.Sprintf("Version %s is below %s of machine %s: a control plane does not go back", p.Version, m.Version, m.Name)
		}
	}
	if oldest, ok := minor(p.OldestKubelet); ok && want > oldest+maxKubeletSkew {
		return fmt.Sprintf("Version %s is too new for kubelets of %s: update the workers first", p.Version, p.OldestKubelet)
	}
	return ""
}

// minor returns the minor version.
func minor(version string) (int, bool) {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 {
		return 0, false
	}
	n, err := strconv.Atoi(parts[1])
	return n, err == nil
}
