package plan

import (
	"slices"
	"strings"
)

// Change is the change of a machine by a rollout.
type Change struct {
	Machine string
	// Replaced is true if the machine does not stay.
	Replaced bool
	// Text describes the change and its reason, for users, such as
	// "to be changed in place: platform.apiServer".
	Text string
}

// Rollout returns the changes of all machines that are not up to date, in the order
// of the rollout: first those in progress. The order changes if for instance another
// member of etcd becomes the leader meanwhile.
func Rollout(in Input) []Change {
	p := newProblem(in, defaultRules())
	var changes []Change
	for _, m := range p.deleting {
		if len(p.outdated(m)) > 0 {
			changes = append(changes, Change{Machine: m.Name, Replaced: true, Text: "being deleted"})
		}
	}
	for _, m := range p.active {
		if inProgress(in, m) {
			changes = append(changes, Change{Machine: m.Name, Text: "being changed in place"})
		}
	}
	old := slices.DeleteFunc(outdatedMachines(p), func(m Machine) bool { return inProgress(in, m) })
	for len(old) > 0 {
		m := p.victim(comeFirst(p, old))
		changes = append(changes, change(p, m))
		old = slices.DeleteFunc(old, func(o Machine) bool { return o.Name == m.Name })
	}
	return changes
}

// inProgress reports whether a machine is being changed in place.
func inProgress(in Input, m Machine) bool { return m.Updating && updateFailed(in, m) == "" }

// change returns the change of an outdated machine.
func change(p *problem, m Machine) Change {
	fields := strings.Join(p.outdated(m), ", ")
	why := notInPlace(p, m)
	switch {
	case p.Strategy == OnDelete:
		return Change{Machine: m.Name, Replaced: true, Text: "to be replaced when it is deleted: " + fields}
	case why == "":
		return Change{Machine: m.Name, Text: "to be changed in place: " + fields}
	case p.InPlace == Only && inUse(p, m) && onlyChangeable(p.Input, m):
		return Change{Machine: m.Name, Text: "not to be changed, because " + why}
	case p.InPlace != Only && p.InPlace != Prefer, !onlyChangeable(p.Input, m):
		return Change{Machine: m.Name, Replaced: true, Text: "to be replaced: " + fields}
	case len(m.NeedReplacement) > 0:
		return Change{Machine: m.Name, Replaced: true, Text: "to be replaced, because " + why}
	}
	return Change{Machine: m.Name, Replaced: true, Text: "to be replaced, because " + why + ": " + fields}
}

// outdatedMachines returns the machines that are not up to date.
func outdatedMachines(p *problem) []Machine {
	return slices.DeleteFunc(slices.Clone(p.active), func(m Machine) bool { return len(p.outdated(m)) == 0 })
}

// comeFirst returns those of the outdated machines that come first: with Only, the ones
// that are replaced.
func comeFirst(p *problem, old []Machine) []Machine {
	toReplace := slices.DeleteFunc(slices.Clone(old), func(m Machine) bool { return !replaced(p.Input, m) })
	if len(toReplace) > 0 {
		return toReplace
	}
	return old
}
