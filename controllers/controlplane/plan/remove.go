package plan

import "fmt"

// clearOrphanedAlarms removes again the members that were removed and left alarms
// behind: that clears the alarms. Until then etcd rejects writes. This step
// comes first, because moving an endpoint away from a machine is a write.
func clearOrphanedAlarms(p *problem) *Decision {
	if len(p.Etcd.OrphanedAlarms) == 0 {
		return nil
	}
	id := p.Etcd.OrphanedAlarms[0]
	return &Decision{
		Action: RemoveMember, Member: id,
		Reason: fmt.Sprintf("Clearing the alarms of removed etcd member %x: %s", id, p.alarms()),
	}
}

// orphanMembers removes members that belong to no machine. A member that has
// not started may belong to a machine whose address is not known yet.
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

// releaseHooks releases deleted machines that wait at our hook, once neither
// redundancy nor etcd needs them. A released machine that joined nevertheless
// loses its member too. Machines whose member does not respond come first: such
// a member blocks joins.
func releaseHooks(p *problem) *Decision {
	var first *Decision
	for _, m := range p.deleting {
		member, has := p.member(m.Name)
		var d *Decision
		switch {
		case !m.AtHook && !m.Released, p.rules.needed(p, m) != "":
		case has:
			d = p.remove(member, "its machine is being deleted")
		case m.AtHook && p.rules.mayRelease(p, m):
			d = onMachine(ReleaseHook, m, "Releasing machine %s: it is not a member of etcd", m.Name)
		}
		if d != nil && (first == nil || has && !member.Healthy) {
			first = d
		}
	}
	return first
}

// hookReason returns why a machine is kept at the hook.
func hookReason(p *problem, m Machine) string {
	if why := p.rules.needed(p, m); why != "" {
		return why
	}
	if _, has := p.member(m.Name); has {
		return "etcd could lose its quorum without it"
	}
	return "it may be about to join etcd, and etcd could then lose its quorum"
}
