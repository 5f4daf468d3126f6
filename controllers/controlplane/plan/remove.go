package plan

import "fmt"

// strayAlarms removes once more who was removed and left alarms behind: that
// takes those back, and etcd takes no writes before. It comes first, for moving
// an endpoint away from a machine is a write.
func strayAlarms(p *problem) *Decision {
	if len(p.Etcd.Strays) == 0 {
		return nil
	}
	id := p.Etcd.Strays[0]
	return &Decision{
		Action: RemoveMember, Member: id,
		Reason: fmt.Sprintf("Taking back what etcd member %x left behind: %s", id, p.alarms()),
	}
}

// orphanMembers takes members away that belong to no machine. One that has not
// started may belong to a machine whose address is not known yet.
func orphanMembers(p *problem) *Decision {
	for _, m := range p.Etcd.Members {
		if _, ok := p.machine(m.Machine); ok || m.Foreign {
			continue
		}
		if m.Name == "" {
			if left := p.Limits.LearnerGrace - p.Now.Sub(m.Since); left > 0 {
				continue
			}
		}
		if d := p.remove(m, "it belongs to no machine"); d != nil {
			return d
		}
	}
	return nil
}

// releaseHooks lets machines go that wait for us, once neither redundancy nor
// etcd needs them. One that was let go and joined nevertheless loses its member too. Those whose member does not answer come first: it is in the way of
// whoever joins.
func releaseHooks(p *problem) *Decision {
	var first *Decision
	for _, m := range p.going {
		member, has := p.member(m.Name)
		var d *Decision
		switch {
		case !m.AtHook && !m.Released, p.rules.needed(p, m) != "":
		case has:
			d = p.remove(member, "its machine is being deleted")
		case m.AtHook && p.rules.mayVanish(p, m):
			d = onMachine(ReleaseHook, m, "Releasing machine %s: etcd does not know it", m.Name)
		}
		if d != nil && (first == nil || has && !member.Healthy) {
			first = d
		}
	}
	return first
}

// held says what keeps a machine that goes.
func (p *problem) held(m Machine) string {
	if why := p.rules.needed(p, m); why != "" {
		return why
	}
	if _, has := p.member(m.Name); has {
		return "etcd could lose its quorum without it"
	}
	return "it may be about to join etcd, which could lose its quorum then"
}
