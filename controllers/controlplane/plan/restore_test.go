package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRestore(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	young := now.Add(-time.Minute)
	old := now.Add(-time.Hour)
	limits := Limits{RestoreTimeout: 45 * time.Minute, RestorePause: 5 * time.Minute}
	// on returns machines with these names.
	on := func(names ...string) []Machine {
		var machines []Machine
		for _, name := range names {
			machines = append(machines, Machine{Name: name})
		}
		return machines
	}
	for name, tc := range map[string]struct {
		reason string
		facts  Restore
		exist  []Machine
		want   Action
		on     []string
	}{
		"Nobody":      {"nothing is restored", Restore{}, on("a"), Nothing, nil},
		"NotPrepared": {"machines stay until the snapshot is known to be whole", Restore{Next: "r"}, on("a"), Nothing, nil},
		"Prepared":    {"it is noted first", Restore{Next: "r", Prepared: true}, on("a"), BeginRestore, nil},
		"Begun": {
			"all machines go at once", Restore{Next: "r", Prepared: true, Begun: "r"}, on("a", "b"),
			DeleteForRestore, []string{"a", "b"},
		},
		"Going": {
			"also machines that are being deleted, which another controller may hold", Restore{Next: "r", Prepared: true, Begun: "r"}, []Machine{{Name: "a", Deleting: true}}, DeleteForRestore, []string{"a"},
		},
		"AllGone": {"then the one that restores is created", Restore{Next: "r", Prepared: true, Unreachable: true, Begun: "r"}, nil, CreateForRestore, nil},
		"AllGoneButAnswers": {
			"an API server that answers would be a second control plane", Restore{Next: "r", Prepared: true, Alive: true, Servers: []string{"x"}, Begun: "r"}, nil,
			Wait, nil,
		},
		"AllGoneNotAsked": {"it is unknown whether an API server answers", Restore{Next: "r", Prepared: true, Begun: "r"}, nil, Wait, nil},
		"MadeNotNamed": {
			"a machine that a crash left without the lock is deleted", Restore{Next: "r", Prepared: true, Begun: "r"}, on("new"),
			DeleteForRestore, []string{"new"},
		},
		"Named": {"it is waited for", Restore{Next: "r", Prepared: true, Begun: "r", Machine: "new", Created: young}, on("new"), Wait, nil},
		"Stranger": {
			"another machine is deleted, not itself", Restore{Next: "r", Prepared: true, Begun: "r", Machine: "new", Created: young}, on("new", "a"),
			DeleteForRestore, []string{"a"},
		},
		"Failed": {
			"one that failed is replaced", Restore{Next: "r", Prepared: true, Unreachable: true, Begun: "r", Machine: "new", Created: old, Failed: true}, on("new"), DeleteForRestore, []string{"new"},
		},
		"FailedAtOnce": {
			"but not one after the other without a pause", Restore{Next: "r", Prepared: true, Unreachable: true, Begun: "r", Machine: "new", Created: young, Failed: true}, on("new"), Wait, nil,
		},
		"FailedNode": {
			"a node that was given up is replaced too", Restore{Next: "r", Prepared: true, Unreachable: true, Begun: "r", Machine: "new", Created: old, Node: true, Failed: true}, on("new"), DeleteForRestore, []string{"new"},
		},
		"FailedButAnswers": {
			"an API server that answers has restored etcd", Restore{Next: "r", Prepared: true, Alive: true, Begun: "r", Machine: "new", Created: old, Node: true, Failed: true}, on("new"), Wait, nil,
		},
		"TooLong": {
			"one that takes too long too", Restore{Next: "r", Prepared: true, Unreachable: true, Begun: "r", Machine: "new", Created: old}, on("new"), DeleteForRestore, []string{"new"},
		},
		"TooLongButAnswers": {
			"unless it answers: after a pause its node may not have been observed yet", Restore{Next: "r", Prepared: true, Alive: true, Begun: "r", Machine: "new", Created: old}, on("new"), Wait, nil,
		},
		"TooLongNotAsked": {
			"nor while it is unknown whether it does", Restore{Next: "r", Prepared: true, Begun: "r", Machine: "new", Created: old}, on("new"), Wait, nil,
		},
		"ClockBehind": {
			"nor where the clock that made it is behind ours", Restore{Next: "r", Prepared: true, Unreachable: true, Begun: "r", Machine: "new", Since: young, Created: old}, on("new"), Wait, nil,
		},
		"SlowButUp":  {"unless it has a node", Restore{Next: "r", Prepared: true, Begun: "r", Machine: "new", Created: old, Node: true}, on("new"), Wait, nil},
		"FailedAway": {"another one is created once it is deleted", Restore{Next: "r", Prepared: true, Unreachable: true, Begun: "r", Machine: "new"}, nil, CreateForRestore, nil},
		"Unprepared": {"etcd's data is lost: the restore continues without the Secret", Restore{Next: "r", Begun: "r", Machine: "new", Created: young}, on("new"), Wait, nil},
		"Restored":   {"nothing changes until the lock is updated", Restore{Next: "r", Restored: true, Begun: "r", Machine: "new", Created: young}, on("new"), Wait, nil},
		"Joining":    {"then all is as always", Restore{Next: "r", Restored: true}, on("new"), Nothing, nil},
		"Abandoned":  {"a restore that was deleted early leaves nothing to continue with", Restore{Begun: "r", Machine: "new", Created: young}, on("new"), Wait, nil},
		"AbandonedUp": {
			"unless it came true all the same", Restore{Abandoned: true, Up: true, Begun: "r", Machine: "new", Created: old, Node: true}, on("new"), EndRestore, nil,
		},
		"AbandonedDown": {"and it is waited for that", Restore{Abandoned: true, Begun: "r", Machine: "new", Created: old, Node: true}, on("new"), Wait, nil},
		"AnotherUp": {
			"also while another looks for its snapshot", Restore{Next: "s", Abandoned: true, Up: true, Begun: "r", Machine: "new", Created: old, Node: true}, on("new"), EndRestore, nil,
		},
		"AnotherFirst": {
			"which does not end a restore that waits for another one", Restore{Next: "s", Up: true, Begun: "r", Machine: "new", Created: old, Node: true}, on("new"), Wait, nil,
		},
		"Another":     {"another waits for its snapshot", Restore{Next: "s", Begun: "r", Machine: "new", Created: young}, on("new"), Wait, nil},
		"AnotherGoes": {"and then takes over", Restore{Next: "s", Prepared: true, Begun: "r", Machine: "new", Created: young}, on("new"), BeginRestore, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := restore(newProblem(Input{Now: now, Machines: tc.exist, Restore: tc.facts, Limits: limits}, defaultRules()))
			if got == nil {
				got = &Decision{Action: Nothing}
			}
			if got.Action != tc.want {
				t.Errorf("%s: %s (%s), want %s", tc.reason, got.Action, got.Reason, tc.want)
			}
			if diff := cmp.Diff(tc.on, got.Machines); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if got.Action != Nothing && (got.Reason == "" || got.Hold == "") {
				t.Error("there is no reason")
			}
		})
	}
}
