package plan

import (
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// running returns a healthy initialized control plane with the given number of
// machines. Its first machine is etcd's leader.
func running(replicas int) Input {
	in := Input{
		Now: now, Replicas: replicas, Version: "v1.36.3", KubeadmVersion: "v1.36.3", MaxSurge: 1, Initialized: true, LockHolder: "a",
		Limits: Limits{
			MaxRetry: 2, RetryPeriod: 5 * time.Minute, MinHealthyPeriod: time.Hour, JoinTimeout: 35 * time.Minute, LearnerGrace: 2 * time.Minute,
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

// fresh returns a control plane of three that is not initialized yet.
func fresh() Input {
	in := Input{Now: now, Replicas: 3, Version: "v1.36.3", Limits: Limits{MaxRetry: -1, MinHealthyPeriod: time.Hour, JoinTimeout: 35 * time.Minute}, EtcdProblem: "no answer"}
	for _, name := range []string{"a", "b", "c"} {
		in.Machines = append(in.Machines, Machine{Name: name, Created: now.Add(-time.Minute), Version: "v1.36.3"})
	}
	return in
}

func joining(name string) Machine {
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
			reason: "missing machines are created before anything is initialized",
			in:     fresh(), change: func(in *Input) { in.Machines = in.Machines[:1] }, want: CreateMachine, about: "1 of 3",
		},
		"Init": {reason: "the oldest takes the lock", in: fresh(), want: StartInit, on: "a"},
		"Holder": {
			reason: "while its holder exists no other machine acquires it",
			in:     fresh(), change: func(in *Input) { in.LockHolder, in.Machines[0].Role = "a", Init }, want: Wait, about: "machine a to initialize",
		},
		"FailedHolder": {
			reason: "a holder that failed is replaced",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate = "a", Init, "no node in time"
			}, want: ReplaceInit, on: "a", about: "no node in time",
			also: func(d Decision) bool { return d.Remediation != nil && d.Remediation.Machine == "a" },
		},
		"FailedHolderUnreachable": {
			reason: "whether it failed is unknown until the workload cluster answers",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Remediate = "a", Init, true, "no node in time"
				in.InitUnknown = true
			}, want: Wait, about: "to answer", also: func(d Decision) bool { return d.Remediation == nil },
		},
		"LateHolderUnreachable": {
			reason: "nor whether it exceeded its time",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted = "a", Init, true
				in.LockSince, in.Now, in.InitUnknown = now, now.Add(36*time.Minute), true
			}, want: Wait, about: "to answer",
		},
		"OutdatedUnreachable": {
			reason: "nor whether it is in use",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Differs = "a", Init, true, []string{"config.files"}
				in.InitUnknown = true
			}, want: Wait, about: "to answer",
		},
		"HookUnreachable": {
			reason: "nor whether its member is needed",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted = "a", Init, true
				in.Machines[2].Deleting, in.Machines[2].AtHook, in.InitUnknown = true, true, true
			}, want: Wait, about: "to answer",
		},
		"NotBootedUnreachable": {
			reason: "a machine that has not booted has initialized nothing",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate, in.InitUnknown = "a", Init, "no host", true
			}, want: ReplaceInit, on: "a",
		},
		"CreateUnreachable": {
			reason: "creating a machine is safe",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.InitUnknown = "a", Init, true, true
				in.Machines = in.Machines[:1]
			}, want: CreateMachine,
		},
		"FailedHolderWithEtcd": {
			reason: "etcd may run where an init failed before kubeadm stored its configuration: no machine can have joined it",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Remediate = "a", Init, true, "its first boot failed"
				in.Etcd = &Etcd{Members: []Member{{ID: 1, Name: "a", Machine: "a", Healthy: true, Leader: true}}}
			}, want: ReplaceInit, on: "a", about: "first boot failed",
		},
		"FailedHolderKeepsLock": {
			reason: "while its host exists no other machine initializes",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Booted, in.Machines[0].Deleting = "a", Init, true, true
				in.Etcd = &Etcd{Members: []Member{{ID: 1, Name: "a", Machine: "a", Healthy: true, Leader: true}}}
			}, want: Wait, about: "machine a to be deleted",
		},
		"LateHolder": {
			reason: "a holder that exceeds its time is replaced without a MachineHealthCheck",
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
			}, want: Wait, about: "machine a to initialize",
		},
		"SlowHolder": {
			reason: "its time begins with the lock",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role = "a", Init
				in.LockSince, in.Now = now, now.Add(35*time.Minute-time.Second)
			}, want: Wait, about: "to initialize", also: func(d Decision) bool { return d.RequeueAfter == 2*time.Second },
		},
		"JoiningHolder": {
			reason: "a holder that was configured to join before it acquired the lock never initializes",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.LockSince, in.Machines[0].Role = "a", now, Join
			}, want: ReplaceInit, on: "a", about: "configured to join",
		},
		"FailedAgain": {
			reason: "the next lock holder counts as the replacement of the failed one", in: fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate = "a", Init, "no node in time"
				in.LastRemediation = &Remediation{Machine: "gone", At: now.Add(-time.Minute), Retries: 1}
			}, want: ReplaceInit, on: "a", also: func(d Decision) bool { return d.Remediation.Retries == 2 },
		},
		"FailedOften": {
			reason: "retries of a machine that failed often wait longer", in: fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Remediate = "a", Init, "no node in time"
				in.LastRemediation = &Remediation{Machine: "gone", At: now.Add(-time.Minute), Retries: 5}
			}, want: Wait, about: "retry period", also: func(d Decision) bool { return d.RequeueAfter == 2*time.Minute },
		},
		"Outdated": {
			reason: "the difference may be why the init fails",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Differs = "a", Init, []string{"config.files"}
			}, want: DeleteMachine, on: "a", about: "config.files",
		},
		"OutdatedOnDelete": {
			reason: "unless users replace machines",
			in:     fresh(), change: func(in *Input) { in.Machines[0].Differs, in.Strategy = []string{"config.files"}, OnDelete }, want: StartInit, on: "a",
		},
		"DeletingHolder": {
			reason: "a holder keeps the lock until its host is deleted",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[0].Role, in.Machines[0].Deleting = "a", Init, true
			}, want: Wait, about: "machine a to be deleted",
		},
		"DeletedHolder": {
			reason: "a deleted holder does not keep the lock",
			in:     fresh(), change: func(in *Input) { in.LockHolder = "gone" }, want: StartInit, on: "a",
		},
		"PossiblyJoined": {
			reason: "a machine that may have joined the deleted holder is deleted first",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[1].Role, in.Machines[1].Booted = "gone", Join, true
			}, want: DeleteMachine, on: "b",
		},
		"JoinedNode": {
			reason: "a node that joined proves an init that was not observed",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder, in.Machines[1].Role, in.Machines[1].Booted, in.Machines[1].Node = "gone", Join, true, true
				in.Machines[1].Remediate = "unhealthy"
			}, want: Wait, about: "no answer",
		},
		"NoneLeft": {
			reason: "a machine that was configured to join cannot initialize",
			in:     fresh(), change: func(in *Input) {
				in.LockHolder = "gone"
				for i := range in.Machines {
					in.Machines[i].Role = Join
				}
			}, want: DeleteMachine, on: "a",
		},
		"Hook": {
			reason: "before the init no machine waits at the hook",
			in:     fresh(), change: func(in *Input) { in.Machines[2].Deleting, in.Machines[2].AtHook = true, true }, want: ReleaseHook, on: "c",
		},
		"TooMany": {
			reason: "the youngest is deleted",
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
		"Unreachable": {
			reason: "nothing is changed while etcd is unreachable",
			in:     running(3), change: func(in *Input) { in.Etcd, in.EtcdProblem, in.Replicas = nil, "the API server is unreachable", 5 }, want: Wait, about: "API server is unreachable",
		},
		"Lost": {
			reason: "without a quorum the reason explains the recovery and nothing is changed",
			in:     running(3), change: func(in *Input) {
				for i := range in.Etcd.Members {
					in.Etcd.Members[i].Healthy, in.Etcd.Members[i].Leader = false, false
				}
				in.Machines[1].Remediate = "unhealthy"
			}, want: Wait, about: "restore etcd from a snapshot", also: func(d Decision) bool { return d.QuorumLost },
		},
		"MembersUnreachable": {
			reason: "there is a leader, but which members work is unknown",
			in:     running(3), change: func(in *Input) {
				in.Etcd.Members[1].Healthy, in.Etcd.Members[2].Healthy, in.Machines[1].Remediate = false, false, "unhealthy"
			}, want: Wait, about: "only 1 of 3", also: func(d Decision) bool { return !d.QuorumLost },
		},
		"NoLeader": {
			reason: "an election has to complete",
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
		"Last":       {reason: "no member is left", in: running(1)},
		"OneOfThreeBesideDead": {
			reason: "one of two is no majority", in: running(3), change: func(in *Input) { in.Etcd.Members[1].Healthy = false }, remove: 2,
		},
		"DeadOfThree": {
			reason: "a member that does not answer is not needed", in: running(3), change: func(in *Input) { in.Etcd.Members[1].Healthy = false }, remove: 1, want: true,
		},
		"DeadOfFiveWithTwoLost": {
			reason: "three of four are left", in: running(5),
			change: func(in *Input) { in.Etcd.Members[1].Healthy, in.Etcd.Members[2].Healthy = false, false }, remove: 1, want: true,
		},
		"TwoBesideLearner": {
			reason: "promoted and not responding, the learner makes it one of two", in: running(2),
			change: func(in *Input) { in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Learner: true}) },
		},
		"ThreeBesideTwoToCome": {
			reason: "two of four are no majority", in: running(3),
			change: func(in *Input) { in.Machines = append(in.Machines, joining("x"), joining("y")) },
		},
		"ThreeBesideOneToCome": {
			reason: "two of three are a majority", in: running(3),
			change: func(in *Input) { in.Machines = append(in.Machines, joining("x")) }, want: true,
		},
		"BesideReleased": {
			reason: "its host may be deleted at any moment", in: running(3),
			change: func(in *Input) { in.Machines[1].Deleting, in.Machines[1].Released = true, true },
		},
		"Released": {
			reason: "two of two are left, and its host is deleted in any case", in: running(3), remove: 1, want: true,
			change: func(in *Input) { in.Machines[1].Deleting, in.Machines[1].Released = true, true },
		},
		"BesideDeletingJoiner": {
			reason: "it may join before its host is deleted", in: running(2),
			change: func(in *Input) {
				x := joining("x")
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
			if got := survives(newProblem(tc.in, defaultRules()), tc.in.Etcd.Members[tc.remove]); got != tc.want {
				t.Errorf("%s: want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

func TestRemoval(t *testing.T) {
	deleting := func(i int) func(in *Input) {
		return func(in *Input) { in.Machines[i].Deleting, in.Machines[i].AtHook = true, true }
	}
	check(t, map[string]step{
		"Leader": {
			reason: "the leadership is moved before the member is removed", in: running(3), change: deleting(0), want: MoveLeader, on: "a", member: 1,
			also: func(d Decision) bool { return d.Target == 2 },
		},
		"UnreachableLeader": {
			reason: "an unreachable leader cannot transfer its leadership", in: running(3), change: func(in *Input) {
				deleting(0)(in)
				in.Etcd.Members[0].Healthy = false
			}, want: RemoveMember, on: "a", member: 1,
		},
		"LeaderTransferFailed": {
			reason: "the removal does not wait for a failing transfer indefinitely", in: running(3), change: func(in *Input) {
				deleting(0)(in)
				in.Etcd.Members[0].LeaderTransferFailed = true
			}, want: RemoveMember, on: "a", member: 1,
		},
		"NextLeader": {
			reason: "a machine that is up to date and not being deleted leads next", in: running(5), change: func(in *Input) {
				deleting(0)(in)
				in.Machines[1].Differs, in.Machines[2].Deleting = []string{"version"}, true
			}, want: MoveLeader, on: "a", member: 1, also: func(d Decision) bool { return d.Target == 4 },
		},
		"Member":   {reason: "then the member is removed by its ID", in: running(3), change: deleting(1), want: RemoveMember, on: "b", member: 2},
		"Draining": {reason: "not before the drain", in: running(3), change: func(in *Input) { in.Machines[1].Deleting = true }, want: Wait, about: "machine b to be deleted"},
		"Release": {
			reason: "then the hook", in: running(3), change: func(in *Input) {
				deleting(1)(in)
				in.Etcd.Members = append(in.Etcd.Members[:1], in.Etcd.Members[2])
			}, want: ReleaseHook, on: "b",
		},
		"NodeDeleted": {
			reason: "it needs neither node nor kubelet", in: running(3), change: func(in *Input) {
				deleting(1)(in)
				in.Machines[1].Node, in.Machines[1].Ready, in.Etcd.Members[1].Healthy = false, false, false
			}, want: RemoveMember, on: "b", member: 2,
		},
		"DeadFirst": {
			reason: "a member that does not answer is removed first", in: running(5), change: func(in *Input) {
				deleting(1)(in)
				deleting(3)(in)
				in.Etcd.Members[3].Healthy = false
			}, want: RemoveMember, on: "d", member: 4,
		},
		"LastVoter": {
			reason: "the last voter waits for another one, which is created", in: running(1), change: deleting(0), want: CreateMachine, about: "0 of 1",
		},
		"LastVoterWaits": {
			reason: "and the reason names the count", in: running(1), change: func(in *Input) {
				deleting(0)(in)
				in.Machines = append(in.Machines, joining("x"))
			}, want: Wait, about: "0 healthy members",
		},
		"MaybeJoining": {
			reason: "beside one voter a machine that may be joining is held, for a limited time", in: running(1), change: func(in *Input) {
				x := joining("x")
				x.Deleting, x.AtHook = true, true
				in.Machines = append(in.Machines, x)
			}, want: Wait, about: "about to join", also: func(d Decision) bool { return d.RequeueAfter == 36*time.Minute+time.Second },
		},
		"NeverJoined": {
			reason: "when that time is over it is released", in: running(1), change: func(in *Input) {
				x := joining("x")
				x.Deleting, x.AtHook, x.Created = true, true, now.Add(-time.Hour)
				in.Machines = append(in.Machines, x)
			}, want: ReleaseHook, on: "x",
		},
		"WasMember": {
			reason: "one whose member was removed does not join again", in: running(1), change: func(in *Input) {
				x := joining("x")
				x.Deleting, x.AtHook, x.Joined = true, true, true
				in.Machines = append(in.Machines, x)
			}, want: ReleaseHook, on: "x",
		},
		"Orphan": {
			reason: "a member without a machine is removed", in: running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Name: "x", Machine: "x"})
			}, want: RemoveMember, on: "x", member: 9, about: "belongs to no machine",
		},
		"Foreign": {
			reason: "a running foreign member is kept and blocks nothing",
			in:     running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Name: "x", Healthy: true, Foreign: true})
			}, want: Nothing,
		},
		"FreshLearner": {
			reason: "a member that has not started may belong to a machine", in: running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Learner: true, Since: now.Add(-time.Minute)})
			}, want: Wait, about: "9", also: func(d Decision) bool { return d.RequeueAfter == time.Minute+time.Second },
		},
		"OldLearner": {
			reason: "but only for a limited time", in: running(3), change: func(in *Input) {
				in.Etcd.Members = append(in.Etcd.Members, Member{ID: 9, Learner: true, Since: now.Add(-time.Hour)})
			}, want: RemoveMember, member: 9,
		},
	})
}
