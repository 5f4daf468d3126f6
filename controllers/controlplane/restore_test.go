package controlplane

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

func TestDecideRestore(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	old := func(name string) restoreMachine {
		return restoreMachine{name: name, created: now.Add(-time.Hour), node: true}
	}
	young := restoreMachine{name: "new", created: now.Add(-time.Minute)}
	with := func(m restoreMachine, change func(*restoreMachine)) restoreMachine {
		change(&m)
		return m
	}
	begun := func(machine string) initlock.Restore { return initlock.Restore{Name: "r", Machine: machine} }
	for name, tc := range map[string]struct {
		reason string
		facts  restoreFacts
		want   restoreAction
		on     []string
	}{
		"Nobody":      {"nothing is restored", restoreFacts{machines: []restoreMachine{old("a")}}, restoreNone, nil},
		"NotPrepared": {"machines stay until the snapshot is known to be whole", restoreFacts{next: "r", machines: []restoreMachine{old("a")}}, restoreNone, nil},
		"Prepared":    {"it is noted first", restoreFacts{next: "r", prepared: true, machines: []restoreMachine{old("a")}}, restoreBegin, nil},
		"Begun": {
			"all machines go at once", restoreFacts{next: "r", prepared: true, lock: begun(""), machines: []restoreMachine{old("a"), old("b")}},
			restoreRemove, []string{"a", "b"},
		},
		"Going": {
			"also machines that are being deleted, which another controller may hold", restoreFacts{
				next: "r", prepared: true, lock: begun(""), machines: []restoreMachine{with(old("a"), func(m *restoreMachine) { m.deleting = true })},
			}, restoreRemove, []string{"a"},
		},
		"AllGone": {"then the one that restores is created", restoreFacts{next: "r", prepared: true, unreachable: true, lock: begun("")}, restoreCreate, nil},
		"AllGoneButAnswers": {
			"an API server that answers would be a second control plane", restoreFacts{next: "r", prepared: true, alive: true, servers: []string{"x"}, lock: begun("")},
			restoreHold, nil,
		},
		"AllGoneNotAsked": {"it is unknown whether an API server answers", restoreFacts{next: "r", prepared: true, lock: begun("")}, restoreHold, nil},
		"MadeNotNamed": {
			"a machine that a crash left without the lock is deleted", restoreFacts{next: "r", prepared: true, lock: begun(""), machines: []restoreMachine{young}},
			restoreRemove, []string{"new"},
		},
		"Named": {"it is waited for", restoreFacts{next: "r", prepared: true, lock: begun("new"), machines: []restoreMachine{young}}, restoreHold, nil},
		"Stranger": {
			"another machine is deleted, not itself", restoreFacts{next: "r", prepared: true, lock: begun("new"), machines: []restoreMachine{young, old("a")}},
			restoreRemove, []string{"a"},
		},
		"Failed": {
			"one that failed is replaced", restoreFacts{
				next: "r", prepared: true, unreachable: true, lock: begun("new"), machines: []restoreMachine{with(old("new"), func(m *restoreMachine) { m.node, m.failed = false, true })},
			}, restoreRemove, []string{"new"},
		},
		"FailedAtOnce": {
			"but not one after the other without a pause", restoreFacts{
				next: "r", prepared: true, unreachable: true, lock: begun("new"), machines: []restoreMachine{with(young, func(m *restoreMachine) { m.failed = true })},
			}, restoreHold, nil,
		},
		"FailedNode": {
			"a node that was given up is replaced too", restoreFacts{
				next: "r", prepared: true, unreachable: true, lock: begun("new"), machines: []restoreMachine{with(old("new"), func(m *restoreMachine) { m.failed = true })},
			}, restoreRemove, []string{"new"},
		},
		"FailedButAnswers": {
			"an API server that answers has restored etcd", restoreFacts{
				next: "r", prepared: true, alive: true, lock: begun("new"), machines: []restoreMachine{with(old("new"), func(m *restoreMachine) { m.failed = true })},
			}, restoreHold, nil,
		},
		"TooLong": {
			"one that takes too long too", restoreFacts{
				next: "r", prepared: true, unreachable: true, lock: begun("new"), machines: []restoreMachine{with(old("new"), func(m *restoreMachine) { m.node = false })},
			}, restoreRemove, []string{"new"},
		},
		"TooLongButAnswers": {
			"unless it answers: after a pause its node may not have been observed yet", restoreFacts{
				next: "r", prepared: true, alive: true, lock: begun("new"), machines: []restoreMachine{with(old("new"), func(m *restoreMachine) { m.node = false })},
			}, restoreHold, nil,
		},
		"TooLongNotAsked": {
			"nor while it is unknown whether it does", restoreFacts{
				next: "r", prepared: true, lock: begun("new"), machines: []restoreMachine{with(old("new"), func(m *restoreMachine) { m.node = false })},
			}, restoreHold, nil,
		},
		"ClockBehind": {
			"nor where the clock that made it is behind ours", restoreFacts{
				next: "r", prepared: true, unreachable: true, lock: initlock.Restore{Name: "r", Machine: "new", Since: now.Add(-time.Minute)},
				machines: []restoreMachine{with(old("new"), func(m *restoreMachine) { m.node = false })},
			}, restoreHold, nil,
		},
		"SlowButUp":  {"unless it has a node", restoreFacts{next: "r", prepared: true, lock: begun("new"), machines: []restoreMachine{old("new")}}, restoreHold, nil},
		"FailedAway": {"another one is created once it is deleted", restoreFacts{next: "r", prepared: true, unreachable: true, lock: begun("new")}, restoreCreate, nil},
		"Unprepared": {"etcd's data is lost: the restore continues without the Secret", restoreFacts{next: "r", lock: begun("new"), machines: []restoreMachine{young}}, restoreHold, nil},
		"Restored":   {"nothing changes until the lock is updated", restoreFacts{next: "r", restored: true, lock: begun("new"), machines: []restoreMachine{young}}, restoreHold, nil},
		"Joining":    {"then all is as always", restoreFacts{next: "r", restored: true, machines: []restoreMachine{old("new")}}, restoreNone, nil},
		"Abandoned":  {"a restore that was deleted early leaves nothing to continue with", restoreFacts{lock: begun("new"), machines: []restoreMachine{young}}, restoreHold, nil},
		"AbandonedUp": {
			"unless it came true all the same", restoreFacts{abandoned: true, up: true, lock: begun("new"), machines: []restoreMachine{old("new")}}, restoreEnd, nil,
		},
		"AbandonedDown": {"and it is waited for that", restoreFacts{abandoned: true, lock: begun("new"), machines: []restoreMachine{old("new")}}, restoreHold, nil},
		"AnotherUp": {
			"also while another looks for its snapshot", restoreFacts{next: "s", abandoned: true, up: true, lock: begun("new"), machines: []restoreMachine{old("new")}}, restoreEnd, nil,
		},
		"AnotherFirst": {
			"which does not end a restore that waits for another one", restoreFacts{next: "s", up: true, lock: begun("new"), machines: []restoreMachine{old("new")}}, restoreHold, nil,
		},
		"Another":     {"another waits for its snapshot", restoreFacts{next: "s", lock: begun("new"), machines: []restoreMachine{young}}, restoreHold, nil},
		"AnotherGoes": {"and then takes over", restoreFacts{next: "s", prepared: true, lock: begun("new"), machines: []restoreMachine{young}}, restoreBegin, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.now = now
			got := decideRestore(tc.facts)
			if got.action != tc.want {
				t.Errorf("%s: %s (%s), want %s", tc.reason, got.action, got.reason, tc.want)
			}
			if diff := cmp.Diff(tc.on, got.machines); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if got.action != restoreNone && got.reason == "" {
				t.Error("there is no reason")
			}
		})
	}
}
