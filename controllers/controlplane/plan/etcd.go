package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// majority is how many of so many voters must answer.
func majority(voters int) int { return voters/2 + 1 }

// survives is the worst-case simulation: without the member, and with every
// learner promoted and every machine still to come joined and none of those
// answering, a majority is left. A voter that does not answer is no part of a
// majority; without it fewer are needed, whoever is still to come.
func survives(p *problem, remove Member) bool {
	if p.healthy < majority(len(p.voters)) {
		return false
	}
	if remove.Learner {
		return true
	}
	voters := len(p.voters) - 1
	switch {
	case !remove.Healthy:
		return p.healthy >= majority(voters)
	case p.released(remove):
		return p.lasting >= majority(voters)
	}
	return p.lasting-1 >= majority(voters+p.toCome())
}

// released reports whether a member's host may be gone at any moment.
func (p *problem) released(m Member) bool {
	on, ok := p.machine(m.Machine)
	return ok && on.Released
}

// toCome counts the learners and the machines that may still become members.
// One that is going away may: until its host is gone, kubeadm may get through.
func (p *problem) toCome() int {
	count := 0
	for _, m := range p.Etcd.Members {
		if m.Learner {
			count++
		}
	}
	for _, m := range p.Machines {
		if p.mayJoin(m) {
			count++
		}
	}
	return count
}

// mayJoin reports whether a machine may still become a member.
func (p *problem) mayJoin(m Machine) bool {
	if p.ExternalEtcd || m.Joined || m.Role == Init || m.Deleting && !m.Booted {
		return false
	}
	_, has := p.member(m.Name)
	return !has && !p.joinBound(m).Before(p.Now)
}

// joinBound is when a machine has had its time to join. A join that was begun
// at the last moment takes a little longer.
func (p *problem) joinBound(m Machine) time.Time {
	if !m.JoinBy.IsZero() {
		return m.JoinBy.Add(p.Limits.LearnerGrace)
	}
	return m.Created.Add(p.Limits.JoinBound + p.Limits.LearnerGrace)
}

// mayVanish reports whether the host of a machine without a member may go. It
// may be about to join: etcd then counts on a voter that is no more.
func mayVanish(p *problem, m Machine) bool {
	return !p.mayJoin(m) || p.lasting >= majority(len(p.voters)+p.toCome())
}

// etcdKnown waits as long as etcd cannot be asked or has no quorum: whatever
// is changed then may make it worse.
func etcdKnown(p *problem) *Decision {
	if p.Etcd == nil {
		return wait("Waiting for etcd to answer: %s", p.Silence)
	}
	if p.ExternalEtcd {
		return nil
	}
	if p.healthy > 0 && p.healthy < majority(len(p.voters)) {
		// A leader is seen, so a majority works. Taking away one of it would
		// be easy, because nobody knows which members it is.
		return wait("Waiting for more members of etcd to answer: it has a leader, but only %d of %d voting members can be asked, and nothing is changed until it is known which work",
			p.healthy, len(p.voters))
	}
	if p.healthy < majority(len(p.voters)) {
		d := wait("etcd lost its quorum: %d of %d voting members answer. %s", p.healthy, len(p.voters), Recovery)
		d.QuorumLost = true
		return d
	}
	for _, m := range p.voters {
		if m.Leader {
			return nil
		}
	}
	return wait("Waiting for etcd to elect a leader")
}

// remove takes a member out, its leadership first. It returns nil if etcd
// could lose its quorum.
func (p *problem) remove(m Member, why string) *Decision {
	if !p.rules.survives(p, m) {
		return nil
	}
	if m.Leader && m.Healthy && !m.Clings {
		if target, ok := p.heir(m); ok {
			return &Decision{
				Action: MoveLeader, Machine: m.Machine, Member: m.ID, Target: target.ID,
				Reason: fmt.Sprintf("Moving etcd's leadership from %s to %s: %s", title(m), title(target), why),
			}
		}
	}
	return &Decision{
		Action: RemoveMember, Machine: m.Machine, Member: m.ID,
		Reason: fmt.Sprintf("Removing etcd member %s: %s", title(m), why),
	}
}

// heir is the best next leader: on a machine that stays and is up to date.
func (p *problem) heir(of Member) (best Member, found bool) {
	rank := -2
	for _, m := range p.voters {
		if m.ID == of.ID || !m.Healthy {
			continue
		}
		score := 0
		if p.released(m) {
			score = -1
		} else if on, ok := p.machine(m.Machine); ok && !on.Deleting {
			score = 1
			if len(p.outdated(on)) == 0 {
				score = 2
			}
		}
		if score > rank {
			best, found, rank = m, true, score
		}
	}
	return best, found
}

// title names a member for people.
func title(m Member) string {
	if m.Name == "" {
		return strconv.FormatUint(m.ID, 16)
	}
	return fmt.Sprintf("%s (%x)", m.Name, m.ID)
}

// alarms says which alarms are raised.
func (p *problem) alarms() string { return strings.Join(p.Etcd.Alarms, ", ") }
