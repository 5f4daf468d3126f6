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
	// Peers are the addresses at which other members reach it.
	Peers []string
	// Learner is true until the member votes.
	Learner bool
	// Answers is true if the member itself answered and sees a leader.
	Answers bool
	// Leader is true for the leader, as far as those that answered know.
	Leader bool
	// Alarms are the names of those that are raised for it.
	Alarms []string
}

// Health is what etcd said of itself.
type Health struct {
	// Members are the members, voting or not, by name.
	Members []Member
	// Alarms are those that are raised, for people.
	Alarms []string
	// Strays are those that alarms are raised for and that are no members any
	// more: nobody else would take these back.
	Strays []uint64
	// Revision is the highest one that a member named.
	Revision int64
}

// raise adds alarms by the member they are raised for.
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

// strays are those that one of the answers has an alarm of and that none lists.
// Who tells of an alarm has seen its member join, so it is gone for good if that
// one does not list it; a list that is older than another's says nothing. Learners
// list nobody. An alarm of member 0 is raised for members that nobody knows.
func strays(answers []answer) []uint64 {
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

// Quorum reports whether a majority of the voting members answers.
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

// Led reports whether some member sees a leader. It does so only while a
// majority works, whether that can be asked or not.
func (h *Health) Led() bool {
	return slices.ContainsFunc(h.Members, func(m Member) bool { return m.Answers })
}

// Problems says, for people, what keeps etcd from being healthy. Every name
// in nodes should be a started, voting member that answers, and no other
// member should exist.
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

// byName sorts members for a message that does not change from look to look.
func byName(a, b Member) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}
