package plan

import (
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// running returns an initialised control plane of so many machines that is as
// it should be. Its first machine leads.
func running(replicas int) Input {
	in := Input{
		Now: now, Replicas: replicas, Version: "v1.36.3", KubeadmVersion: "v1.36.3", MaxSurge: 1, Initialized: true, LockHolder: "a",
		Limits: Limits{
			MaxRetry: 2, RetryPeriod: 5 * time.Minute, MinHealthyPeriod: time.Hour, JoinBound: 35 * time.Minute, LearnerGrace: 2 * time.Minute,
		},
		Etcd: &Etcd{},
	}
	for i := range replicas {
		name := string(rune('a' + i))
		in.Machines = append(in.Machines, Machine{
			Name: name, Created: now.Add(time.Duration(i-100) * time.Hour), Version: "v1.36.3", Role: Join, Booted: true, Node: true, APIServer: APIServerServes, Ready: true,
		})
		in.Etcd.Members = append(in.Etcd.Members, Member{
			ID: uint64(i + 1), Name: name, Machine: name, Since: now.Add(-time.Hour), Healthy: true, Leader: i == 0,
		})
	}
	return in
}

// fresh returns a control plane of three that nobody initialised yet.
func fresh() Input {
	in := Input{Now: now, Replicas: 3, Version: "v1.36.3", Limits: Limits{MaxRetry: -1, MinHealthyPeriod: time.Hour, JoinBound: 35 * time.Minute}, Silence: "no answer"}
	for _, name := range []string{"a", "b", "c"} {
		in.Machines = append(in.Machines, Machine{Name: name, Created: now.Add(-time.Minute), Version: "v1.36.3"})
	}
	return in
}

func newcomer(name string) Machine {
	return Machine{Name: name, Created: now.Add(-time.Minute), Version: "v1.36.3", Role: Join, Booted: true}
}

type step struct {
	reason string
	in     Input
	change func(in *Input)
	want   Action
	// on is the machine, and about is part of the reason.
	on, about string
	member    uint64
	also      func(d Decision) bool
}

func check(t *testing.T, steps map[string]step) {
	t.Helper()
	for name, tc := range steps {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.in)
			}
			got := Decide(tc.in)
			if got.Action != tc.want || got.Machine != tc.on || got.Member != tc.member || !strings.Contains(got.Reason, tc.about) {
				t.Errorf("%s: want %s %q member %d about %q, got %+v", tc.reason, tc.want, tc.on, tc.member, tc.about, got)
			}
			if tc.also != nil && !tc.also(got) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

func TestStart(t *testing.T) {
	check(t, map[string]step{
		"Create": {
			reason: "missing machines are created before anything is initialised",
			in:     fresh(), change: func(in *Input) { in.Machines = in.Machines[:1] }, want: CreateMachine, about: "1 of 3",
		},
		"Init": {reason: "the oldest takes the lock", in: fresh(), want: StartInit, on: "a"},
		"Holder": {
			reason: "while its holder is there nobody else takes it",
			in:     fresh(), change: func(in *Input) { in.LockHolder, in.Machines[0].Role = "a", Init }, want: Wait, about: "machine a to initialise",
		},
		"FailedHolder": {
			reason: "a holder that failed is replaced",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate = "a", Init, "no node in time"
			}, want: ReplaceInit, on: "a", about: "no node in time",
			also: func(d Decision) bool { return d.Remediation != nil && d.Remediation.Machine == "a" },
		},
		"FailedHolderUnasked": {
			reason: "nobody knows whether it failed before the tenant was asked",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Remediate = "a", Init, true, "no node in time"
				in.Unasked = true
			}, want: Wait, about: "to be asked", also: func(d Decision) bool { return d.Remediation == nil },
		},
		"LateHolderUnasked": {
			reason: "nor whether its time was too short",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted = "a", Init, true
				in.LockSince, in.Now, in.Unasked = now, now.Add(36*time.Minute), true
			}, want: Wait, about: "to be asked",
		},
		"MendedUnasked": {
			reason: "nor whether it serves somebody",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Differs = "a", Init, true, []string{"config.files"}
				in.Unasked = true
			}, want: Wait, about: "to be asked",
		},
		"HookUnasked": {
			reason: "nor whether its member is needed",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted = "a", Init, true
				in.Machines[2].Deleting, in.Machines[2].AtHook, in.Unasked = true, true, true
			}, want: Wait, about: "to be asked",
		},
		"NotBootedUnasked": {
			reason: "who has not booted has initialised nothing",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate, in.Unasked = "a", Init, "no host", true
			}, want: ReplaceInit, on: "a",
		},
		"CreateUnasked": {
			reason: "who is made is in nobody's way",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Unasked = "a", Init, true, true
				in.Machines = in.Machines[:1]
			}, want: CreateMachine,
		},
		"FailedHolderWithEtcd": {
			reason: "etcd may run where an init failed before kubeadm stored its configuration: nobody can have joined it",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Remediate = "a", Init, true, "its first boot failed"
				in.Etcd = &Etcd{Members: []Member{{ID: 1, Name: "a", Machine: "a", Healthy: true, Leader: true}}}
			}, want: ReplaceInit, on: "a", about: "first boot failed",
		},
		"FailedHolderKeepsLock": {
			reason: "as long as its host is there nobody initialises beside it",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Deleting = "a", Init, true, true
				in.Etcd = &Etcd{Members: []Member{{ID: 1, Name: "a", Machine: "a", Healthy: true, Leader: true}}}
			}, want: Wait, about: "machine a to be gone",
		},
		"LateHolder": {
			reason: "a holder that never gets through is replaced unasked",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role = "a", Init
				in.LockSince, in.Now = now, now.Add(36*time.Minute)
			}, want: ReplaceInit, on: "a", about: "in time",
		},
		"QueuedHolder": {
			reason: "its time begins when its infrastructure is ready",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role = "a", Init
				in.LockSince, in.Now = now, now.Add(36*time.Minute)
				in.Machines[0].Started = now.Add(30 * time.Minute)
			}, want: Wait, about: "machine a to initialise",
		},
		"SlowHolder": {
			reason: "its time begins with the lock",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role = "a", Init
				in.LockSince, in.Now = now, now.Add(35*time.Minute-time.Second)
			}, want: Wait, about: "to initialise", also: func(d Decision) bool { return d.Again == 2*time.Second },
		},
		"ToldHolder": {
			reason: "a holder that was told to join before it got the lock never initialises",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.LockSince, in.Machines[0].Role = "a", now, Join
			}, want: ReplaceInit, on: "a", about: "told to join",
		},
		"FailedAgain": {
			reason: "who initialises next takes the place of who failed", in: fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate = "a", Init, "no node in time"
				in.LastRemediation = &Remediation{Machine: "gone", At: now.Add(-time.Minute), Retries: 1}
			}, want: ReplaceInit, on: "a", also: func(d Decision) bool { return d.Remediation.Retries == 2 },
		},
		"FailedOften": {
			reason: "what failed again and again is tried at length only", in: fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate = "a", Init, "no node in time"
				in.LastRemediation = &Remediation{Machine: "gone", At: now.Add(-time.Minute), Retries: 5}
			}, want: Wait, about: "retry period", also: func(d Decision) bool { return d.Again == 2*time.Minute },
		},
		"Mended": {
			reason: "what is wrong with a machine may be why nothing gets through",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Differs = "a", Init, []string{"config.files"}
			}, want: DeleteMachine, on: "a", about: "config.files",
		},
		"MendedOnDelete": {
			reason: "unless people do that",
			in:     fresh(), change: func(in *Input) { in.Machines[0].Differs, in.Strategy = []string{"config.files"}, OnDelete }, want: StartInit, on: "a",
		},
		"GoingHolder": {
			reason: "a holder keeps the lock until its host is gone",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Deleting = "a", Init, true
			}, want: Wait, about: "machine a to be gone",
		},
		"GoneHolder": {
			reason: "a dead holder cannot keep the lock",
			in:     fresh(), change: func(in *Input) { in.LockHolder = "gone" }, want: StartInit, on: "a",
		},
		"DoubtfulJoiner": {
			reason: "who may have joined the holder that is gone goes first",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[1].Role, in.Machines[1].Booted = "gone", Join, true
			}, want: DeleteMachine, on: "b",
		},
		"JoinedNode": {
			reason: "a node that joined tells of an init that nobody saw",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[1].Role, in.Machines[1].Booted, in.Machines[1].Node = "gone", Join, true, true
				in.Machines[1].Remediate = "dead"
			}, want: Wait, about: "no answer",
		},
		"NobodyLeft": {
			reason: "a machine that was told to join cannot initialise",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder = "gone"
				for i := range in.Machines {
					in.Machines[i].Role = Join
				}
			}, want: DeleteMachine, on: "a",
		},
		"Hook": {
			reason: "before the init nothing is held back",
			in:     fresh(), change: func(in *Input) { in.Machines[2].Deleting, in.Machines[2].AtHook = true, true }, want: ReleaseHook, on: "c",
		},
		"TooMany": {
			reason: "the youngest goes",
			in:     fresh(), change: func(in *Input) { in.Replicas = 1 }, want: DeleteMachine, on: "c",
		},
		"Limit": {
			reason: "replacements of the init are bounded too",
			in:     fresh(), change: func(in *Input) {
				in.Limits.MaxRetry = 0
				in.LastRemediation = &Remediation{Machine: "x", At: now.Add(-time.Minute)}
				in.LockHolder, in.Machines[0].Role = "a", Init
				in.Machines[0].Replaces, in.Machines[0].Remediate = "x", "no node in time"
			}, want: Wait, about: "limit", also: func(d Decision) bool { return d.LimitReached },
		},
	})
}

func TestQuorum(t *testing.T) {
	check(t, map[string]step{
		"Whole": {reason: "nothing to do", in: running(3), want: Nothing},
		"Silent": {
			reason: "what is not known is not changed",
			in:     running(3), change: func(in *Input) { in.Etcd, in.Silence, in.Replicas = nil, "the API server is away", 5 }, want: Wait, about: "API server is away",
		},
		"Lost": {
			reason: "without a quorum it says how to recover and changes nothing",
			in:     running(3), change: func(in *Input) {
				for i := range in.Etcd.Members {
					in.Etcd.Members[i].Healthy, in.Etcd.Members[i].Leader = false, false
				}
				in.Machines[1].Remediate = "dead"
			}, want: Wait, about: "restore etcd from a snapshot", also: func(d Decision) bool { return d.QuorumLost },
		},
		"Unasked": {
			reason: "a leader is seen, but who works is not known",
			in:     running(3), change: func(in *Input) {
				in.Etcd.Members[1].Healthy, in.Etcd.Members[2].Healthy, in.Machines[1].Remediate = false, false, "dead"
			}, want: Wait, about: "only 1 of 3", also: func(d Decision) bool { return !d.QuorumLost },
		},
		"NoLeader": {
			reason: "an election is waited for",
			in:     running(3), change: func(in *Input) { in.Etcd.Members[0].Leader = false }, want: Wait, about: "elect",
		},
	})
}

func TestSurvives(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(in *Input)
		in     Input
		remove int
		want   bool
	}{
		"OneOfThree": {reason: "two of two are left", in: running(3), remove: 2, want: true},
		"Last":       {reason: "nobody is left", in: running(1)},
		"OneOfThreeBesideDead": {
			reason: "one of two is no majority", in: running(3), change: func(in *Input) { in.Etcd.Members[1].Healthy = false }, remove: 2,
		},
		"DeadOfThree": {
			reason: "who does not answer is not missed", in: running(3), change: func(in *Input) { in.Etcd.Members[1].Healthy = false }, remove: 1, want: true,
		},
		"DeadOfFiveWithTwoLost": {
			reason: "three of four are left", in: running(5),
			change: func(in *Input) { in.Etcd.Members[1].Healthy, in.Etcd.Members[2].Healthy = false, false }, remove: 1, want: true,
		},
		"TwoBesideLearner": {
			reason: "promoted and silent, the learner makes it one of two", in: running(2),
			change: func(in *Input) { in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Learner: true}) },
		},
		"ThreeBesideTwoToCome": {
			reason: "two of four are no majority", in: running(3),
			change: func(in *Input) { in.Machines = append(in.Machines, newcomer("x"), newcomer("y")) },
		},
		"ThreeBesideOneToCome": {
			reason: "two of three are a majority", in: running(3),
			change: func(in *Input) { in.Machines = append(in.Machines, newcomer("x")) }, want: true,
		},
		"BesideOneLetGo": {
			reason: "its host may be gone at any moment", in: running(3),
			change: func(in *Input) { in.Machines[1].Deleting, in.Machines[1].Released = true, true },
		},
		"OneLetGo": {
			reason: "two of two are left, and it is going anyway", in: running(3), remove: 1, want: true,
			change: func(in *Input) { in.Machines[1].Deleting, in.Machines[1].Released = true, true },
		},
		"BesideOneThatGoes": {
			reason: "it may get through before its host is gone", in: running(2),
			change: func(in *Input) {
				x := newcomer("x")
				x.Deleting = true
				in.Machines = append(in.Machines, x)
			},
		},
		"Learner": {
			reason: "a learner does not vote", in: running(1),
			change: func(in *Input) { in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Learner: true}) }, remove: 1, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.in)
			}
			if got := survives(newProblem(tc.in, sound()), tc.in.Etcd.Members[tc.remove]); got != tc.want {
				t.Errorf("%s: want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

func TestRemoval(t *testing.T) {
	going := func(i int) func(in *Input) {
		return func(in *Input) { in.Machines[i].Deleting, in.Machines[i].AtHook = true, true }
	}
	check(t, map[string]step{
		"Leader": {
			reason: "the leadership goes before the member", in: running(3), change: going(0), want: MoveLeader, on: "a", member: 1,
			also: func(d Decision) bool { return d.Target == 2 },
		},
		"SilentLeader": {
			reason: "a leader that cannot be asked cannot hand over", in: running(3), change: func(in *Input) {
				going(0)(in)
				in.Etcd.Members[0].Healthy = false
			}, want: RemoveMember, on: "a", member: 1,
		},
		"ClingingLeader": {
			reason: "nobody waits for a leader for ever", in: running(3), change: func(in *Input) {
				going(0)(in)
				in.Etcd.Members[0].Clings = true
			}, want: RemoveMember, on: "a", member: 1,
		},
		"Heir": {
			reason: "a machine that stays and is up to date leads next", in: running(5), change: func(in *Input) {
				going(0)(in)
				in.Machines[1].Differs, in.Machines[2].Deleting = []string{"version"}, true
			}, want: MoveLeader, on: "a", member: 1, also: func(d Decision) bool { return d.Target == 4 },
		},
		"Member":   {reason: "then the member goes, by its ID", in: running(3), change: going(1), want: RemoveMember, on: "b", member: 2},
		"Draining": {reason: "not before the drain", in: running(3), change: func(in *Input) { in.Machines[1].Deleting = true }, want: Wait, about: "machine b to be gone"},
		"Release": {
			reason: "then the hook", in: running(3), change: func(in *Input) {
				going(1)(in)
				in.Etcd.Members = append(in.Etcd.Members[:1], in.Etcd.Members[2])
			}, want: ReleaseHook, on: "b",
		},
		"NodeGone": {
			reason: "it needs neither node nor kubelet", in: running(3), change: func(in *Input) {
				going(1)(in)
				in.Machines[1].Node, in.Machines[1].Ready, in.Etcd.Members[1].Healthy = false, false, false
			}, want: RemoveMember, on: "b", member: 2,
		},
		"DeadFirst": {
			reason: "who does not answer goes first", in: running(5), change: func(in *Input) {
				going(1)(in)
				going(3)(in)
				in.Etcd.Members[3].Healthy = false
			}, want: RemoveMember, on: "d", member: 4,
		},
		"LastVoter": {
			reason: "the last voter waits for another, which is made", in: running(1), change: going(0), want: CreateMachine, about: "0 of 1",
		},
		"LastVoterWaits": {
			reason: "and says so", in: running(1), change: func(in *Input) {
				going(0)(in)
				in.Machines = append(in.Machines, newcomer("x"))
			}, want: Wait, about: "0 healthy members",
		},
		"MaybeJoining": {
			reason: "beside one voter a machine that may be joining is held, for a time", in: running(1), change: func(in *Input) {
				x := newcomer("x")
				x.Deleting, x.AtHook = true, true
				in.Machines = append(in.Machines, x)
			}, want: Wait, about: "about to join", also: func(d Decision) bool { return d.Again == 36*time.Minute+time.Second },
		},
		"NeverJoined": {
			reason: "when that time is over it goes", in: running(1), change: func(in *Input) {
				x := newcomer("x")
				x.Deleting, x.AtHook, x.Created = true, true, now.Add(-time.Hour)
				in.Machines = append(in.Machines, x)
			}, want: ReleaseHook, on: "x",
		},
		"WasMember": {
			reason: "one whose member was removed does not join again", in: running(1), change: func(in *Input) {
				x := newcomer("x")
				x.Deleting, x.AtHook, x.Joined = true, true, true
				in.Machines = append(in.Machines, x)
			}, want: ReleaseHook, on: "x",
		},
		"Orphan": {
			reason: "a member without a machine goes", in: running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Name: "x", Machine: "x"})
			}, want: RemoveMember, on: "x", member: 9, about: "belongs to no machine",
		},
		"Stranger": {
			reason: "what runs is somebody's and no reason to wait",
			in:     running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Name: "x", Healthy: true, Foreign: true})
			}, want: Nothing,
		},
		"FreshLearner": {
			reason: "one that has not started may be anybody's", in: running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Learner: true, Since: now.Add(-time.Minute)})
			}, want: Wait, about: "9", also: func(d Decision) bool { return d.Again == time.Minute+time.Second },
		},
		"OldLearner": {
			reason: "but not for ever", in: running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Learner: true, Since: now.Add(-time.Hour)})
			}, want: RemoveMember, member: 9,
		},
	})
}
