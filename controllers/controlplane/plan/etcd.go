package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// majority returns how many of the voters must respond.
func majority(voters int) int { return voters/2 + 1 }

// survives simulates the worst case: without the member, with every learner
// promoted, every pending machine joined and none of those responding, a
// majority is left. A voter that does not respond is not part of a majority;
// without it the majority is smaller, independent of pending machines.
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
		return p.healthyUnreleased >= majority(voters)
	}
	return p.healthyUnreleased-1 >= majority(voters+p.pendingMembers())
}

// pendingMembers counts the learners and the machines that may still become members. A
// machine that is being deleted counts too: until its host is deleted, kubeadm
// may still succeed.
func (p *problem) pendingMembers() int {
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
	return !has && !p.joinDeadline(m).Before(p.Now)
}

// mayRelease reports whether the host of a machine without a member may be
// deleted. The machine may be about to join: etcd would then count a voter that
// no longer exists.
func mayRelease(p *problem, m Machine) bool {
	return !p.mayJoin(m) || p.healthyUnreleased >= majority(len(p.voters)+p.pendingMembers())
}

// waitForEtcd waits while etcd cannot be reached or has no quorum, because any
// change could make that worse.
func waitForEtcd(p *problem) *Decision {
	if p.Etcd == nil {
		return wait("Waiting for etcd to answer: %s", p.EtcdProblem)
	}
	if p.ExternalEtcd {
		return nil
	}
	if p.healthy > 0 && p.healthy < majority(len(p.voters)) {
		// There is a leader, so a majority works. Removing one of its members
		// would break it, and it is unknown which members they are.
		return wait("Waiting for more members of etcd to answer: it has a leader, but only %d of %d voting members can be reached, and nothing is changed until it is known which of them work",
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

// remove removes a member and moves its leadership first. It returns nil if
// etcd could lose its quorum.
func (p *problem) remove(m Member, why string) *Decision {
	if !p.rules.survives(p, m) {
		return nil
	}
	if m.Leader && m.Healthy && !m.LeaderTransferFailed {
		if target, ok := p.nextLeader(m); ok {
			return &Decision{
				Action: MoveLeader, Machine: m.Machine, Member: m.ID, Target: target.ID,
				Reason: fmt.Sprintf("Moving etcd's leadership from %s to %s: %s", memberName(m), memberName(target), why),
			}
		}
	}
	return &Decision{
		Action: RemoveMember, Machine: m.Machine, Member: m.ID,
		Reason: fmt.Sprintf("Removing etcd member %s: %s", memberName(m), why),
	}
}

// nextLeader returns the best next leader: on a machine that is up to date and not
// being deleted.
func (p *problem) nextLeader(of Member) (best Member, found bool) {
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

// memberName returns the name of a member for users.
func memberName(m Member) string {
	if m.Name == "" {
		return strconv.FormatUint(m.ID, 16)
	}
	return fmt.Sprintf("%s (%x)", m.Name, m.ID)
}

// alarms returns the raised alarms.
func (p *problem) alarms() string { return strings.Join(p.Etcd.Alarms, ", ") }
