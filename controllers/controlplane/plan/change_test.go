package plan

import (
	"strings"
	"testing"
	"time"
)

func TestRemediation(t *testing.T) {
	unhealthy := func(i int) func(in *Input) { return func(in *Input) { in.Machines[i].Remediate = "no heartbeat" } }
	check(t, map[string]step{
		"One": {
			reason: "it is replaced", in: running(3), change: unhealthy(1), want: Remediate, on: "b", about: "no heartbeat",
			also: func(d Decision) bool { return d.Remediation != nil && d.Remediation.Retries == 0 },
		},
		"UnhealthyMemberFirst": {
			reason: "no machine can join beside a member that does not answer", in: running(5), change: func(in *Input) {
				unhealthy(1)(in)
				unhealthy(2)(in)
				in.Etcd.Members[2].Healthy = false
			}, want: Remediate, on: "c",
		},
		"OneAtATime": {
			reason: "the next waits until it is deleted", in: running(5), change: func(in *Input) {
				unhealthy(1)(in)
				in.Machines[2].Deleting = true
			}, want: Wait, about: "waits for another machine",
		},
		"NotSafe": {
			reason: "etcd would lose its quorum", in: running(3), change: func(in *Input) {
				unhealthy(1)(in)
				in.Etcd.Members[2].Healthy = false
			}, want: Wait, about: "blocked",
		},
		"OnlyVoter": {
			reason: "another joins first", in: running(1), change: unhealthy(0), want: CreateMachine, about: "0 healthy members", also: func(d Decision) bool { return d.Replaces == "a" },
		},
		"Replacement": {
			reason: "the new machine names the machine that it replaces", in: running(3), change: func(in *Input) {
				in.LastRemediation = &Remediation{Machine: "x", At: now}
				in.Replicas = 4
			}, want: CreateMachine, also: func(d Decision) bool { return d.Replaces == "x" },
		},
		"Retry": {
			reason: "a replacement that fails too counts", in: running(3), change: func(in *Input) {
				unhealthy(1)(in)
				in.Machines[1].Replaces = "x"
				in.LastRemediation = &Remediation{Machine: "x", At: now.Add(-10 * time.Minute), Retries: 1}
			}, want: Remediate, on: "b", also: func(d Decision) bool { return d.Remediation.Retries == 2 },
		},
		"RetryStored": {
			reason: "a remediation that was stored before a crash is the same retry",
			in:     running(3), change: func(in *Input) {
				in.Machines[2].Remediate, in.Machines[2].Replaces = "unhealthy", "before"
				in.LastRemediation = &Remediation{Machine: "c", At: now.Add(-time.Minute), Retries: 2}
			}, want: Remediate, on: "c", also: func(d Decision) bool { return d.Remediation.Retries == 2 },
		},
		"Period": {
			reason: "not sooner than the period allows", in: running(3), change: func(in *Input) {
				unhealthy(1)(in)
				in.Machines[1].Replaces = "x"
				in.LastRemediation = &Remediation{Machine: "x", At: now.Add(-time.Minute)}
			}, want: Wait, about: "retry period", also: func(d Decision) bool { return d.RequeueAfter == 4*time.Minute },
		},
		"Limit": {
			reason: "the number of retries is limited", in: running(3), change: func(in *Input) {
				unhealthy(1)(in)
				in.Machines[1].Replaces = "x"
				in.LastRemediation = &Remediation{Machine: "x", At: now.Add(-10 * time.Minute), Retries: 2}
			}, want: Wait, about: "3 replacements failed", also: func(d Decision) bool { return d.LimitReached },
		},
		"HealthyFirst": {
			reason: "a failure after the healthy period is a new one", in: running(3), change: func(in *Input) {
				unhealthy(1)(in)
				in.Machines[1].Replaces = "x"
				in.LastRemediation = &Remediation{Machine: "x", At: now.Add(-2 * time.Hour), Retries: 2}
			}, want: Remediate, on: "b", also: func(d Decision) bool { return d.Remediation.Retries == 0 },
		},
		"LateInitFailure": {
			reason: "etcd runs where the init failed at its end: the others have to join before it is removed",
			in:     lateFailure(), want: Wait, about: "machine a is blocked", also: func(d Decision) bool { return d.Remediation == nil },
		},
		"LateInitFailureWaits": {
			reason: "remediation waits for the joins", in: lateFailure(), change: func(in *Input) {
				in.Machines = append(in.Machines, joining("d"))
			}, want: Wait, about: "machine a is blocked",
		},
		"LateInitFailureJoiners": {
			reason: "joiners that failed there too do not have to wait for it", in: lateFailure(), change: func(in *Input) {
				in.Machines = append(in.Machines, joining("d"))
				in.Machines[1].Remediate = "its first boot failed"
			}, want: Remediate, on: "b",
		},
		"LateInitFailureReplaced": {
			reason: "it is deleted when two others vote", in: lateFailure(), change: func(in *Input) {
				in.Machines = append(in.Machines, joining("d"))
				for i, name := range []string{"b", "c"} {
					in.Machines[i+1].Node, in.Machines[i+1].Ready, in.Machines[i+1].APIServer = true, true, APIServerServes
					in.Etcd.Members = append(in.Etcd.Members, Member{ID: uint64(i + 2), Name: name, Machine: name, Healthy: true})
				}
				in.Machines = in.Machines[:3]
			}, want: Remediate, on: "a",
		},
		"BlockedMachineBlocksNoOther": {
			reason: "a machine that etcd needs does not block the replacement of others", in: running(3), change: func(in *Input) {
				unhealthy(0)(in)
				in.Machines = append(in.Machines, joining("x"), joining("y"))
				in.Machines[3].Remediate = "its first boot failed"
			}, want: Remediate, on: "x",
		},
		"NeverJoined": {
			reason: "a machine that did not join etcd in time is replaced without a MachineHealthCheck", in: running(3), change: func(in *Input) {
				in.Etcd.Members = in.Etcd.Members[:2]
			}, want: Remediate, on: "c", about: "did not join etcd",
		},
		"JoinsLater": {
			reason: "a machine that waited for its hypervisor has its full time to join", in: running(3), change: func(in *Input) {
				in.Etcd.Members = in.Etcd.Members[:2]
				in.Machines[2].JoinBy = now.Add(time.Minute)
			}, want: Wait, about: "Waiting for machine c to join etcd",
		},
		"HasNotJoined": {
			reason: "its time ends", in: running(3), change: func(in *Input) {
				in.Etcd.Members = in.Etcd.Members[:2]
				in.Machines[2].JoinBy = now.Add(-in.Limits.LearnerGrace - time.Second)
			}, want: Remediate, on: "c", about: "did not join etcd",
		},
	})
}

// lateFailure is a control plane of three whose init failed after etcd and the
// API server had started: there is one member, and its machine is not a node.
func lateFailure() Input {
	in := running(1)
	in.Replicas = 3
	in.Machines[0].Role, in.Machines[0].Node, in.Machines[0].Ready = Init, false, false
	in.Machines[0].Remediate = "its first boot failed"
	in.Machines = append(in.Machines, joining("b"), joining("c"))
	return in
}

func TestScale(t *testing.T) {
	check(t, map[string]step{
		"Up":   {reason: "machines are created", in: running(1), change: func(in *Input) { in.Replicas = 3 }, want: CreateMachine, about: "1 of 3"},
		"Down": {reason: "not the leader", in: running(3), change: func(in *Input) { in.Replicas = 1 }, want: DeleteMachine, on: "b"},
		"UpMore": {reason: "all at once, they join one after another", in: running(1), change: func(in *Input) {
			in.Replicas = 3
			in.Machines = append(in.Machines, joining("x"))
		}, want: CreateMachine, about: "2 of 3"},
		"UpBesideDead": {
			reason: "no machine can join beside a member that does not answer", in: running(3), change: func(in *Input) {
				in.Replicas, in.Etcd.Members[2].Healthy = 5, false
			}, want: Wait, about: "etcd member c (3) does not answer",
		},
		"UpWithAlarm": {
			reason: "no machine can join with an alarm raised", in: running(1), change: func(in *Input) { in.Replicas, in.Etcd.Alarms = 3, []string{"NOSPACE"} }, want: Wait, about: "NOSPACE",
		},
		"OrphanedAlarm": {
			reason: "a member whose removal was interrupted left an alarm behind, which only its removal clears", in: running(1), change: func(in *Input) {
				in.Replicas, in.Etcd.Alarms, in.Etcd.OrphanedAlarms = 3, []string{"Alarm NOSPACE is raised"}, []uint64{9}
			}, want: RemoveMember, member: 9, about: "Alarm NOSPACE",
		},
		"OrphanedAlarmAndOrphan": {
			reason: "it is removed first: until then etcd rejects writes", in: running(3), change: func(in *Input) {
				in.Etcd.Members[2].Machine, in.Etcd.OrphanedAlarms = "", []uint64{9}
			}, want: RemoveMember, member: 9,
		},
		"OrphanedAlarmWithoutQuorum": {
			reason: "nothing is changed without a quorum", in: running(3), change: func(in *Input) {
				in.Etcd.Members[1].Healthy, in.Etcd.Members[2].Healthy, in.Etcd.OrphanedAlarms = false, false, []uint64{9}
			}, want: Wait, about: "1 of 3",
		},
		"DownOne": {
			reason: "one at a time", in: running(5), change: func(in *Input) { in.Replicas, in.Machines[1].Deleting = 1, true }, want: Wait, about: "machine b to be deleted",
		},
		"DownBesideDead": {
			reason: "the machine that is not ready is deleted", in: running(5), change: func(in *Input) {
				in.Replicas, in.Etcd.Members[3].Healthy, in.Machines[3].Ready = 3, false, false
			}, want: DeleteMachine, on: "d",
		},
		"DownBesideJoiner": {
			reason: "the machine that has not joined is deleted", in: running(3), change: func(in *Input) {
				in.Machines = append(in.Machines, joining("x"))
			}, want: DeleteMachine, on: "x",
		},
		"DownAsked": {
			reason: "the machine that a user marked is deleted", in: running(3), change: func(in *Input) { in.Replicas, in.Machines[2].DeleteFirst = 1, true }, want: DeleteMachine, on: "c",
		},
		"DownDomain": {
			reason: "from the failure domain with most machines", in: running(3), change: func(in *Input) {
				in.Replicas = 1
				in.Machines[0].Domain, in.Machines[1].Domain, in.Machines[2].Domain = "x", "y", "x"
			}, want: DeleteMachine, on: "c",
		},
	})
}

func TestRollout(t *testing.T) {
	old := func(in *Input) {
		for i := range in.Machines {
			in.Machines[i].Differs = []string{"config.files"}
		}
	}
	check(t, map[string]step{
		"Surge":   {reason: "one more is created first", in: running(3), change: old, want: CreateMachine, about: "config.files"},
		"NoSurge": {reason: "one is deleted first", in: running(3), change: func(in *Input) { old(in); in.MaxSurge = 0 }, want: DeleteMachine, on: "b", about: "config.files"},
		"OnlyOne": {reason: "a sole machine cannot be deleted first", in: running(1), change: func(in *Input) { old(in); in.MaxSurge = 0 }, want: CreateMachine},
		"Then": {
			reason: "then an old one is deleted", in: running(4), change: func(in *Input) {
				old(in)
				in.Replicas, in.Machines[3].Differs = 3, nil
			}, want: DeleteMachine, on: "b",
		},
		"NotYet": {
			reason: "not before the new one is healthy", in: running(4), change: func(in *Input) {
				old(in)
				in.Replicas, in.Machines[3].Differs, in.Machines[3].Ready = 3, nil, false
			}, want: Wait, about: "machine d to be ready",
		},
		"SpecFixed": {
			reason: "machines of a wrong spec do not have to become ready once it is fixed", in: running(3), change: func(in *Input) {
				old(in)
				in.Machines[1].Ready, in.Machines[2].Ready = false, false
			}, want: CreateMachine, about: "replace b",
		},
		"SpecFixedThen": {
			reason: "nor when one of them is deleted, because it does not serve", in: running(4), change: func(in *Input) {
				old(in)
				in.Replicas, in.Machines[3].Differs = 3, nil
				in.Machines[1].Ready, in.Machines[2].Ready = false, false
			}, want: DeleteMachine, on: "b",
		},
		"SpecNotFixed": {
			reason: "a new machine that is not ready shows that the spec is not fixed", in: running(4), change: func(in *Input) {
				old(in)
				in.Replicas, in.Machines[3].Differs = 3, nil
				in.Machines[1].Ready, in.Machines[3].Ready = false, false
			}, want: Wait, about: "machine d to be ready",
		},
		"OnDelete":      {reason: "no user deleted a machine", in: running(3), change: func(in *Input) { old(in); in.Strategy = OnDelete }, want: Nothing},
		"After":         {reason: "rollout.after passed", in: running(3), change: func(in *Input) { in.RolloutAfter = now.Add(-time.Minute) }, want: CreateMachine, about: "rollout.after"},
		"AfterToCome":   {reason: "not before", in: running(3), change: func(in *Input) { in.RolloutAfter = now.Add(time.Minute) }, want: Nothing, also: func(d Decision) bool { return d.RequeueAfter == time.Minute+time.Second }},
		"AfterWasBegun": {reason: "machines created since are kept", in: running(1), change: func(in *Input) { in.RolloutAfter = now.Add(-200 * time.Hour) }, want: Nothing},
		"Expiry": {
			reason: "certificates that expire soon", in: running(3), change: func(in *Input) {
				in.ExpiryWindow, in.Machines[2].CertificatesExpire = 720*time.Hour, now.Add(700*time.Hour)
			}, want: CreateMachine, about: "replace c: its certificates expire",
		},
		"ExpiryToCome": {
			reason: "certificates that do not", in: running(3), change: func(in *Input) {
				in.ExpiryWindow, in.Machines[2].CertificatesExpire = 720*time.Hour, now.Add(721*time.Hour)
			}, want: Nothing, also: func(d Decision) bool { return d.RequeueAfter == time.Hour+time.Second },
		},
		"ExpiryWindowTooLong": {
			reason: "a new machine would be replaced as soon as it exists", in: running(3), change: func(in *Input) {
				in.ExpiryWindow, in.CertificateLifetime = 365*24*time.Hour, 365*24*time.Hour
				in.Machines[2].CertificatesExpire = now.Add(300 * 24 * time.Hour)
			}, want: Nothing, also: func(d Decision) bool { return d.RequeueAfter == 0 },
		},
		"ExpiryMoved": {
			reason: "a move makes all machines young, but their certificates keep their expiry", in: running(3), change: func(in *Input) {
				in.ExpiryWindow, in.CertificateLifetime = 30*24*time.Hour, 365*24*time.Hour
				in.Machines[2].Created, in.Machines[2].CertificatesExpire = now.Add(-time.Hour), now.Add(20*24*time.Hour)
			}, want: CreateMachine, about: "replace c: its certificates expire",
		},
		"ExpiryDaily": {
			reason: "a rollout whose machines last a day ends", in: running(3), change: func(in *Input) {
				in.ExpiryWindow, in.CertificateLifetime = 364*24*time.Hour, 365*24*time.Hour
				in.Machines[2].CertificatesExpire = now.Add(363 * 24 * time.Hour)
			}, want: CreateMachine, about: "replace c: its certificates expire",
		},
		"NeverWell": {
			reason: "a machine of a wrong template is replaced without surge", in: running(3), change: func(in *Input) {
				x := joining("x")
				x.Differs = []string{"config.files"}
				in.Machines, in.Replicas = append(in.Machines, x), 4
			}, want: DeleteMachine, on: "x",
		},
		"Stored": {
			reason: "kubeadm's configuration is updated first", in: running(3), change: func(in *Input) { old(in); in.KubeadmVersion = "v1.35.4" }, want: SetVersion,
		},
	})
}

func TestJoinBlocked(t *testing.T) {
	refused := func(change func(in *Input)) func(in *Input) {
		return func(in *Input) {
			in.JoinBlocked = "a patch is no YAML"
			for i := range in.Machines {
				in.Machines[i].Differs = []string{"config.kubeadm"}
			}
			if change != nil {
				change(in)
			}
		}
	}
	const about = "No machine can join: a patch is no YAML"
	check(t, map[string]step{
		"Rollout": {reason: "no replacement could join", in: running(3), change: refused(nil), want: Wait, about: about},
		"RolloutNoSurge": {
			reason: "a machine that is deleted first would never be replaced", in: running(3), change: refused(func(in *Input) { in.MaxSurge = 0 }), want: Wait, about: about,
		},
		"Version":   {reason: "it is stored with the rest", in: running(3), change: refused(func(in *Input) { in.KubeadmVersion = "v1.35.4" }), want: Wait, about: about},
		"ScaleUp":   {reason: "no machine could join", in: running(3), change: refused(func(in *Input) { in.Replicas = 5 }), want: Wait, about: about},
		"ScaleDown": {reason: "no machine has to join", in: running(5), change: refused(func(in *Input) { in.Replicas = 3 }), want: DeleteMachine, on: "b"},
		"Unhealthy": {
			reason: "an unhealthy machine is removed", in: running(3),
			change: refused(func(in *Input) { in.Machines[1].Remediate, in.Etcd.Members[1].Healthy = "unhealthy", false }), want: Remediate, on: "b",
		},
		"Hook": {
			reason: "a deleted machine is released", in: running(3),
			change: refused(func(in *Input) { in.Machines[1].Deleting, in.Machines[1].AtHook = true, true }), want: RemoveMember, on: "b", member: 2,
		},
	})
}

func TestVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason           string
		want, is, oldest string
		action           Action
		about            string
	}{
		"NextMinor":  {reason: "one minor version up", want: "v1.36.3", is: "v1.35.4", action: CreateMachine},
		"SkipsMinor": {reason: "two are too many", want: "v1.37.0", is: "v1.35.4", action: Wait, about: "upgrade to the minor version between"},
		"Back":       {reason: "never back", want: "v1.35.4", is: "v1.36.3", action: Wait, about: "cannot be downgraded"},
		"Skew":       {reason: "kubelets may be three behind", want: "v1.36.3", is: "v1.35.4", oldest: "v1.33.0", action: CreateMachine},
		"TooFar":     {reason: "and not four", want: "v1.36.3", is: "v1.35.4", oldest: "v1.32.9", action: Wait, about: "update the workers first"},
	} {
		t.Run(name, func(t *testing.T) {
			in := running(3)
			in.Version, in.KubeadmVersion, in.OldestKubelet = tc.want, tc.want, tc.oldest
			for i := range in.Machines {
				in.Machines[i].Version, in.Machines[i].Differs = tc.is, []string{"version"}
			}
			if got := Decide(in); got.Action != tc.action || !strings.Contains(got.Reason, tc.about) {
				t.Errorf("%s: want %s, got %+v", tc.reason, tc.action, got)
			}
		})
	}
}

func TestExternalEtcd(t *testing.T) {
	check(t, map[string]step{
		"Whole": {reason: "machines need no members", in: running(3), change: external, want: Nothing},
		"Hook": {reason: "the hook waits for no etcd member", in: running(3), change: func(in *Input) {
			external(in)
			in.Machines[0].Deleting, in.Machines[0].AtHook = true, true
		}, want: ReleaseHook, on: "a"},
		"Down": {reason: "one machine is deleted", in: running(3), change: func(in *Input) { external(in); in.Replicas = 2 }, want: DeleteMachine, on: "a"},
	})
}

func TestUnhealthyReason(t *testing.T) {
	in := running(3)
	if why := UnhealthyReason(in, in.Machines[0]); why != "" {
		t.Errorf("a healthy machine is unhealthy: %s", why)
	}
	in.Etcd.Members = in.Etcd.Members[1:]
	if why := UnhealthyReason(in, in.Machines[0]); why == "" {
		t.Error("a machine that never joined etcd is healthy")
	}
	in.Etcd = nil
	if why := UnhealthyReason(in, in.Machines[0]); why != "" {
		t.Errorf("a machine is unhealthy because etcd is unreachable: %s", why)
	}
}
