package etcd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Member is one member of an etcd cluster.
type Member struct {
	ID uint64
	// Name is the node's name; empty until the member has started.
	Name string
	// Peers are the peer URLs of the member.
	Peers []string
	// Learner is true until the member votes.
	Learner bool
	// Answers is true if the member itself responded and has a leader.
	Answers bool
	// Leader is true for the leader, according to the members that responded.
	Leader bool
	// Alarms are the names of its raised alarms.
	Alarms []string
}

// Health is the reported state of etcd.
type Health struct {
	// Members are the members, voting or not, by name.
	Members []Member
	// Alarms are the raised alarms, for messages.
	Alarms []string
	// Orphans are the IDs with raised alarms that are no longer members: no
	// other component disarms these alarms.
	Orphans []uint64
	// Revision is the highest reported revision.
	Revision int64
}

// raise adds alarms, by member.
func (h *Health) raise(alarms map[uint64][]string) {
	for id, names := range alarms {
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			text := "Alarm " + name + " is raised"
			at := slices.IndexFunc(h.Members, func(m Member) bool { return m.ID == id })
			if at >= 0 {
				h.Members[at].Alarms = append(h.Members[at].Alarms, name)
				text += " for member " + cmp.Or(h.Members[at].Name, strconv.FormatUint(id, 16))
			}
			h.Alarms = append(h.Alarms, text)
		}
	}
	slices.Sort(h.Alarms)
}

// orphans returns the IDs that have an alarm in one of the answers and that no
// answer lists as a member. A member that reports an alarm has seen the alarm's
// member join, so if it does not list that member, the member was removed; an
// older list of another member proves nothing. Learners have no list. An alarm
// of member 0 belongs to no known member.
func orphans(answers []answer) []uint64 {
	listed := map[uint64]bool{0: true}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for _, m := range a.members.Members {
			listed[m.GetID()] = true
		}
	}
	found := map[uint64]bool{}
	for _, a := range answers {
		if a.err != nil || len(a.members.Members) == 0 {
			continue
		}
		for _, alarm := range a.alarms {
			if !listed[alarm.member] {
				found[alarm.member] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Quorum reports whether a majority of the voting members responds.
func (h *Health) Quorum() bool {
	voters, answering := 0, 0
	for _, m := range h.Members {
		if m.Learner {
			continue
		}
		voters++
		if m.Answers {
			answering++
		}
	}
	return voters > 0 && answering > voters/2
}

// Led reports whether a member has a leader. A leader exists only while a
// majority works, even if that majority cannot be reached.
func (h *Health) Led() bool {
	return slices.ContainsFunc(h.Members, func(m Member) bool { return m.Answers })
}

// Problems returns messages about the reasons why etcd is not healthy. Every
// name in nodes must be a started, voting member that responds, and no other
// member may exist.
func (h *Health) Problems(nodes []string) []string {
	var problems []string
	seen := map[string]bool{}
	for _, m := range h.Members {
		seen[m.Name] = true
		switch {
		case m.Name == "":
			problems = append(problems, "A member was added and has not started")
		case m.Learner:
			problems = append(problems, fmt.Sprintf("Member %s is a learner and does not vote yet", m.Name))
		case !slices.Contains(nodes, m.Name):
			problems = append(problems, fmt.Sprintf("Member %s belongs to no control plane node", m.Name))
		case !m.Answers:
			problems = append(problems, fmt.Sprintf("Member %s does not answer", m.Name))
		}
	}
	for _, node := range nodes {
		if !seen[node] {
			problems = append(problems, fmt.Sprintf("Node %s has no member", node))
		}
	}
	if !h.Quorum() {
		problems = append(problems, "Fewer than a majority of the voting members answer")
	}
	problems = append(problems, h.Alarms...)
	slices.Sort(problems)
	return slices.Compact(problems)
}

// Foreign returns the names of the started members that belong to none of the
// nodes.
func (h *Health) Foreign(nodes []string) []string {
	var foreign []string
	for _, m := range h.Members {
		if m.Name != "" && !slices.Contains(nodes, m.Name) {
			foreign = append(foreign, m.Name)
		}
	}
	return foreign
}

// byName sorts members, so that messages are stable.
func byName(a, b Member) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}
