package plan

import (
	"testing"
	"time"
)

// loseKubelets makes API servers unknown, as they are while their kubelets do not
// report.
func loseKubelets(in *Input, machines ...int) {
	for _, i := range machines {
		in.Machines[i].APIServer, in.Machines[i].Ready = APIServerUnknown, false
	}
}

// fail makes API servers fail.
func fail(in *Input, machines ...int) {
	for _, i := range machines {
		in.Machines[i].APIServer, in.Machines[i].Ready = APIServerFails, false
	}
}

// markUnhealthy marks machines for remediation, as a MachineHealthCheck does.
func markUnhealthy(in *Input, machines ...int) {
	for _, i := range machines {
		in.Machines[i].Remediate, in.Machines[i].Ready = "its node is not ready", false
	}
}

// atHook deletes machines that wait at the hook.
func atHook(in *Input, machines ...int) {
	for _, i := range machines {
		in.Machines[i].Deleting, in.Machines[i].AtHook = true, true
	}
}

// without removes a machine and its member.
func without(in *Input, machine int) {
	in.Machines = append(in.Machines[:machine:machine], in.Machines[machine+1:]...)
	if len(in.Etcd.Members) > machine {
		in.Etcd.Members = append(in.Etcd.Members[:machine:machine], in.Etcd.Members[machine+1:]...)
	}
}

// join adds a machine that serves and votes.
func join(in *Input, name, replaces string) {
	m := joining(name)
	m.Node, m.Ready, m.APIServer, m.Replaces = true, true, APIServerServes, replaces
	in.Machines = append(in.Machines, m)
	if !in.ExternalEtcd {
		in.Etcd.Members = append(in.Etcd.Members, Member{ID: uint64(name[0]), Name: name, Machine: name, Healthy: true})
	}
}

func external(in *Input) { in.ExternalEtcd, in.Etcd = true, &Etcd{} }

func TestRedundancy(t *testing.T) {
	check(t, map[string]step{
		"ThreeAtOnce": {
			reason: "one of three is removed", in: running(3), change: func(in *Input) { markUnhealthy(in, 0, 1, 2) }, want: Remediate, on: "a",
		},
		"ThreeAtOnceThen": {
			reason: "its replacement is created before the next one is removed", in: running(3), change: func(in *Input) {
				markUnhealthy(in, 0, 1, 2)
				without(in, 0)
				in.Etcd.Members[0].Leader = true
				in.LastRemediation = &Remediation{Machine: "a", At: now.Add(-time.Minute)}
			}, want: CreateMachine, about: "2 of 3", also: func(d Decision) bool { return d.Replaces == "a" },
		},
		"ThreeAtOnceWhileItJoins": {
			reason: "and has joined", in: running(3), change: func(in *Input) {
				markUnhealthy(in, 0, 1, 2)
				without(in, 0)
				in.Etcd.Members[0].Leader = true
				in.Machines = append(in.Machines, joining("d"))
				in.LastRemediation = &Remediation{Machine: "a", At: now.Add(-time.Minute)}
			}, want: Wait, about: "would keep 1 healthy members",
		},
		"ThreeAtOnceNext": {
			reason: "then the next one is removed", in: running(3), change: func(in *Input) {
				markUnhealthy(in, 0, 1, 2)
				without(in, 0)
				in.Etcd.Members[0].Leader = true
				join(in, "d", "a")
				in.LastRemediation = &Remediation{Machine: "a", At: now.Add(-time.Minute)}
			}, want: Remediate, on: "b",
		},
		"NoKubeletReports": {
			reason: "no API server is known to serve, so a machine is created first", in: running(3), change: func(in *Input) {
				markUnhealthy(in, 0, 1, 2)
				loseKubelets(in, 0, 1, 2)
			}, want: CreateMachine, about: "known to serve", also: func(d Decision) bool { return d.Replaces == "a" },
		},
		"LastServingUnhealthy": {
			reason: "the last API server that serves is not remediated", in: running(3), change: func(in *Input) {
				fail(in, 1, 2)
				markUnhealthy(in, 0)
			}, want: Wait, about: "no other machine has an API server that is known to serve",
		},
		"FailingFirst": {
			reason: "machines whose API server fails are, member or not", in: running(3), change: func(in *Input) {
				fail(in, 1, 2)
				markUnhealthy(in, 0, 1, 2)
			}, want: Remediate, on: "b",
		},
		"FailingOneAfterAnother": {
			reason: "one after another", in: running(3), change: func(in *Input) {
				fail(in, 1, 2)
				markUnhealthy(in, 0, 1, 2)
				without(in, 1)
			}, want: CreateMachine, about: "2 of 3",
		},
		"LastServingAtHook": {
			reason: "it is not released when it is deleted by hand: others are created first", in: running(3), change: func(in *Input) {
				fail(in, 1, 2)
				atHook(in, 0)
			}, want: CreateMachine, about: "2 of 3",
		},
		"LastServingAtHookHeld": {
			reason: "and it is held until they serve", in: running(3), change: func(in *Input) {
				fail(in, 1, 2)
				atHook(in, 0)
				in.Machines = append(in.Machines, joining("d"))
			}, want: Wait, about: "machine a to be deleted: no other machine",
		},
		"LastServingOverridden": {
			reason: "unless an administrator set the annotation", in: running(3), change: func(in *Input) {
				fail(in, 1, 2)
				atHook(in, 0)
				in.Machines[0].SkipRedundancy = true
			}, want: MoveLeader, on: "a", member: 1,
		},
		"OverrideKeepsQuorum": {
			reason: "the annotation does not let etcd lose its last member", in: running(1), change: func(in *Input) {
				atHook(in, 0)
				in.Machines[0].SkipRedundancy = true
				in.Machines = append(in.Machines, joining("d"))
			}, want: Wait, about: "could lose its quorum",
		},
		"TwoDeletedByHand": {
			reason: "of two that are deleted at once the second one waits for a replacement", in: running(3), change: func(in *Input) {
				atHook(in, 0, 1)
				without(in, 0)
				in.Etcd.Members[0].Leader = true
			}, want: CreateMachine, about: "1 of 3",
		},
		"DeadMembersOfFive": {
			reason: "members that do not answer are not needed", in: running(5), change: func(in *Input) {
				markUnhealthy(in, 3, 4)
				loseKubelets(in, 3, 4)
				in.Etcd.Members[3].Healthy, in.Etcd.Members[4].Healthy = false, false
				without(in, 3)
			}, want: Remediate, on: "e",
		},
		"FailedJoiners": {
			reason: "the replacement is created first there too", in: running(3), change: func(in *Input) {
				in.Replicas = 5
				in.Machines = append(in.Machines, joining("x"))
				in.Machines[3].Remediate = "its first boot failed"
			}, want: CreateMachine, about: "4 of 5",
		},
		"ScaleDownToOne": {
			reason: "the number of replicas in the spec counts", in: running(3), change: func(in *Input) { in.Replicas = 1 }, want: DeleteMachine, on: "b",
		},
	})
}

func TestRedundancyWithExternalEtcd(t *testing.T) {
	check(t, map[string]step{
		"AllSick": {
			reason: "one of three is removed", in: running(3), change: func(in *Input) { external(in); markUnhealthy(in, 0, 1, 2) }, want: Remediate, on: "a",
		},
		"AllSickThen": {
			reason: "the next one only after its replacement", in: running(3), change: func(in *Input) {
				external(in)
				markUnhealthy(in, 0, 1, 2)
				without(in, 0)
				in.Machines = append(in.Machines, joining("d"))
			}, want: Wait, about: "1 API servers would serve",
		},
		"SoleDeleted": {
			reason: "the only machine waits for another one", in: running(1), change: func(in *Input) { external(in); atHook(in, 0) },
			want: CreateMachine, about: "0 of 1",
		},
		"SoleDeletedHeld": {
			reason: "until it serves", in: running(1), change: func(in *Input) {
				external(in)
				atHook(in, 0)
				in.Machines = append(in.Machines, joining("d"))
			}, want: Wait, about: "machine a to be deleted: no other machine",
		},
		"SoleDeletedReleased": {
			reason: "then it is removed", in: running(1), change: func(in *Input) { external(in); atHook(in, 0); join(in, "d", "") }, want: ReleaseHook, on: "a",
		},
		"AllDeleted": {
			reason: "of three deleted machines two are kept", in: running(3), change: func(in *Input) { external(in); atHook(in, 0, 1, 2) },
			want: ReleaseHook, on: "a",
		},
		"AllDeletedThen": {
			reason: "until new ones serve", in: running(3), change: func(in *Input) {
				external(in)
				atHook(in, 0, 1, 2)
				without(in, 0)
				in.Machines = append(in.Machines, joining("d"), joining("e"), joining("f"))
			}, want: Wait, about: "1 API servers would serve",
		},
		"DeadOfThree": {
			reason: "a lost host does not block the remediation of another lost host", in: running(3), change: func(in *Input) {
				external(in)
				loseKubelets(in, 1, 2)
				markUnhealthy(in, 1, 2)
			}, want: Remediate, on: "b",
		},
		"InitNoNode": {
			reason: "a machine that ran kubeadm init serves before its node exists", in: running(1), change: func(in *Input) {
				external(in)
				in.Machines[0].Role, in.Machines[0].Node, in.Machines[0].Differs = Init, false, []string{"config.files"}
				loseKubelets(in, 0)
			}, want: Wait, about: "machine a to become a node",
		},
		"Even": {
			reason: "an even number of replicas works too", in: running(2), change: func(in *Input) { external(in); markUnhealthy(in, 0, 1) }, want: Remediate, on: "a",
		},
	})
}

func TestSoleReplica(t *testing.T) {
	sole := func(last *Remediation, replaces string) Input {
		in := running(1)
		in.Limits.MaxRetry, in.Limits.RetryPeriod = -1, 0
		in.LastRemediation, in.Machines[0].Replaces = last, replaces
		markUnhealthy(&in, 0)
		return in
	}
	check(t, map[string]step{
		"First": {reason: "it is replaced, the replacement first", in: sole(nil, ""), want: CreateMachine, also: func(d Decision) bool { return d.Replaces == "a" }},
		"Joined": {
			reason: "then it is removed", in: sole(nil, ""), change: func(in *Input) { join(in, "d", "a") }, want: Remediate, on: "a",
		},
		"Retry": {
			reason: "a replacement that fails too is replaced once", in: sole(&Remediation{Machine: "z", At: now.Add(-time.Minute)}, "z"),
			want: CreateMachine, also: func(d Decision) bool { return d.Replaces == "a" },
		},
		"Limit": {
			reason: "and not again and again", in: sole(&Remediation{Machine: "z", At: now.Add(-time.Minute), Retries: 1}, "z"),
			want: Wait, about: "2 replacements failed", also: func(d Decision) bool { return d.LimitReached && d.RequeueAfter == 59*time.Minute },
		},
		"FailedBoots": {
			reason: "replacements that never joined count", in: sole(&Remediation{Machine: "y", Replaces: "a", At: now.Add(-time.Minute), Retries: 1}, ""),
			change: func(in *Input) {
				x := joining("x")
				x.Replaces, x.Remediate = "a", "its first boot failed"
				in.Machines = append(in.Machines, x)
			}, want: Wait, about: "2 replacements failed", also: func(d Decision) bool { return d.LimitReached },
		},
		"Own": {
			reason: "a limit in the spec counts", in: sole(&Remediation{Machine: "z", At: now.Add(-10 * time.Minute), Retries: 1}, "z"),
			change: func(in *Input) { in.Limits.MaxRetry = 5 }, want: CreateMachine,
		},
	})
}

func TestMovedWhileDeleted(t *testing.T) {
	moved := func(in *Input) {
		in.Machines[2].Joined, in.Machines[2].Ready = true, true
		in.Machines[2].Created = now
		in.Etcd.Members = in.Etcd.Members[:2]
	}
	check(t, map[string]step{
		"Unhealthy":   {reason: "it never joins again and is replaced at once", in: running(3), change: moved, want: Remediate, on: "c", about: "removed from etcd"},
		"Unreachable": {reason: "unless etcd is unreachable", in: running(3), change: func(in *Input) { moved(in); in.Etcd = nil }, want: Wait},
		"Member": {
			reason: "a member whose removal was recorded and not carried out is still a member", in: running(3),
			change: func(in *Input) { in.Machines[2].Joined = true }, want: Nothing,
		},
	})
}
