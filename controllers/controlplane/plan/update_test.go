package plan

import (
	"testing"
	"time"
)

// newerVersion is the next minor version.
const newerVersion = "v1.37.0"

// inPlace returns a running control plane whose machines differ from the spec.
func inPlace(replicas int, mode InPlace) Input {
	in := running(replicas)
	in.InPlace, in.Limits.UpdateTimeout = mode, 10*time.Minute
	for i := range in.Machines {
		in.Machines[i].Differs = []string{"platform.apiServer"}
	}
	return in
}

func TestUpdatesInPlace(t *testing.T) {
	replaced := func(in *Input) {
		for i := range in.Machines {
			in.Machines[i].Differs = append(in.Machines[i].Differs, "config.taints")
			in.Machines[i].NeedReplacement = []string{"config.taints"}
		}
	}
	begun := func(since time.Duration) func(*Input) {
		return func(in *Input) {
			m := &in.Machines[1]
			m.Differs, m.Updating, m.UpdateBegun, m.UpdatingSince, m.UpdateProgress = nil, true, true, now.Add(-since), "a step failed"
		}
	}
	marked := func(since time.Duration) func(*Input) {
		return func(in *Input) { in.Machines[1].Updating, in.Machines[1].UpdatingSince = true, now.Add(-since) }
	}
	expires := func(in *Input, machine int) {
		in.ExpiryWindow = 24 * time.Hour
		in.Machines[machine].CertificatesExpire = now.Add(time.Hour)
	}
	check(t, map[string]step{
		"Never":     {reason: "machines are replaced", in: inPlace(3, Never), want: CreateMachine},
		"Prefer":    {reason: "no other machine is created", in: inPlace(3, Prefer), want: UpdateMachine, on: "b", about: "platform.apiServer"},
		"Only":      {reason: "no other machine is created", in: inPlace(3, Only), want: UpdateMachine, on: "b"},
		"Replaced":  {reason: "a field needs another machine", in: inPlace(3, Prefer), change: replaced, want: CreateMachine, about: "config.taints"},
		"OnlyStops": {reason: "nothing is changed", in: inPlace(3, Only), change: replaced, want: Wait, about: "need another machine: config.taints. Revert them"},
		"OnlyAfter": {
			reason: "users request the replacement with rollout.after", in: inPlace(3, Only), change: func(in *Input) { in.RolloutAfter = now.Add(-time.Second) },
			want: CreateMachine,
		},
		"OnDelete": {reason: "users decide when", in: inPlace(3, Prefer), change: func(in *Input) { in.Strategy = OnDelete }, want: Nothing},
		"Paused":   {reason: "users look at the changes first", in: inPlace(3, Prefer), change: func(in *Input) { in.RolloutPaused = true }, want: Wait, about: "spec.rollout.paused"},
		"PausedReplacement": {
			reason: "users look at the changes first", in: inPlace(3, Never), change: func(in *Input) { in.RolloutPaused = true },
			want: Wait, about: "spec.rollout.paused",
		},
		"PausedBeforeBegin": {
			reason: "Cluster API has not begun it", in: inPlace(3, Prefer), change: func(in *Input) {
				marked(time.Minute)(in)
				in.RolloutPaused = true
			}, want: CancelUpdate, on: "b",
		},
		"PausedAfterBegin": {
			reason: "Cluster API changes the machine", in: inPlace(3, Prefer), change: func(in *Input) {
				begun(time.Minute)(in)
				in.RolloutPaused = true
			}, want: Wait, about: "machine b to be changed in place",
		},
		"PausedFailure": {
			reason: "a failed machine is no rollout", in: inPlace(3, Prefer), change: func(in *Input) {
				in.RolloutPaused, in.Machines[1].Remediate = true, "no heartbeat"
			}, want: Remediate, on: "b",
		},
		"Sole":     {reason: "its API server would be missing", in: inPlace(1, Prefer), want: CreateMachine},
		"SoleOnly": {reason: "users accept that its API server restarts", in: inPlace(1, Only), want: UpdateMachine, on: "a"},
		"Quorum": {
			reason: "a member that fails later would cost the quorum", in: inPlace(3, Prefer), change: func(in *Input) { in.Etcd.Members[2].Healthy = false },
			want: Wait, about: "etcd member c (3) to answer",
		},
		"Server": {
			reason: "two API servers have to serve meanwhile", in: inPlace(3, Prefer), change: func(in *Input) { in.Machines[2].APIServer = APIServerFails },
			want: Wait, about: "1 API servers would serve without it",
		},
		"ConfigurationNotStored": {
			reason: "the components would read former settings", in: inPlace(3, Prefer), change: func(in *Input) { in.JoinBlocked = "it is not stored" },
			want: Wait, about: "it is not stored",
		},
		"Upgrade": {
			reason: "kubeadm deploys the version that is stored", in: inPlace(3, Prefer), change: func(in *Input) { in.Version = newerVersion },
			want: SetVersion, about: "for machine b to v1.37.0",
		},
		"UpgradeStored": {
			reason: "the machine changes its version", in: inPlace(3, Only), change: func(in *Input) { in.Version, in.KubeadmVersion = newerVersion, newerVersion },
			want: UpdateMachine, on: "b",
		},
		"UpgradeOfTheNext": {
			reason: "one machine after another, the leader last", in: inPlace(3, Prefer), change: func(in *Input) {
				in.Version, in.KubeadmVersion = newerVersion, newerVersion
				in.Machines[1].Differs, in.Machines[1].Version = nil, newerVersion
			}, want: UpdateMachine, on: "c",
		},
		"UpgradeOverAMinor": {
			reason: "no minor version is left out", in: inPlace(3, Only), change: func(in *Input) { in.Version = "v1.38.0" },
			want: Wait, about: "upgrade to the minor version between them first",
		},
		"UpgradeBesideALearner": {
			reason: "a member has to vote first", in: inPlace(3, Prefer), change: func(in *Input) {
				in.Version, in.KubeadmVersion = newerVersion, newerVersion
				in.Etcd.Members[2].Learner = true
			}, want: Wait, about: "etcd member c (3) to vote",
		},
		"RevertedUpgrade": {
			reason: "kubeadm would deploy the version that is stored", in: inPlace(3, Prefer), change: func(in *Input) { in.KubeadmVersion = "v1.37.0" },
			want: SetVersion, about: "v1.36.3",
		},
		"VersionUnknown": {
			reason: "kubeadm would deploy the version that is stored", in: inPlace(3, Prefer), change: func(in *Input) { in.KubeadmVersion = "" },
			want: Wait, about: "the version in kubeadm's stored configuration",
		},
		"ContinuedButReverted": {
			reason: "the version is set first", in: inPlace(3, Prefer), change: func(in *Input) {
				marked(time.Minute)(in)
				in.KubeadmVersion = "v1.37.0"
			}, want: CancelUpdate, on: "b",
		},
		"Continued": {
			reason: "the begin was interrupted", in: inPlace(3, Prefer), change: func(in *Input) { in.Machines[1].Updating = true },
			want: UpdateMachine, on: "b",
		},
		"ContinuedButReplaced": {
			reason: "another field changed since", in: inPlace(3, Prefer), change: func(in *Input) {
				replaced(in)
				marked(time.Minute)(in)
			}, want: CancelUpdate, on: "b",
		},
		"ContinuedButExpires": {
			reason: "the machine is replaced", in: inPlace(3, Only), change: func(in *Input) {
				marked(time.Minute)(in)
				in.RolloutAfter = now.Add(-time.Second)
			}, want: CancelUpdate, on: "b",
		},
		"ContinuedButNever": {reason: "users want no change in place", in: inPlace(3, Never), change: marked(time.Minute), want: CancelUpdate, on: "b"},
		"ContinuedButSame": {
			reason: "nothing is left to change", in: inPlace(3, Prefer), change: func(in *Input) {
				marked(time.Minute)(in)
				in.Machines[1].Differs = nil
			}, want: CancelUpdate, on: "b",
		},
		"ContinuedButQuorum": {
			reason: "a member that fails would cost the quorum", in: inPlace(3, Prefer), change: func(in *Input) {
				marked(time.Minute)(in)
				in.Etcd.Members[2].Healthy = false
			}, want: CancelUpdate, on: "b",
		},
		"BeginFails":     {reason: "a replacement is the last way", in: inPlace(3, Prefer), change: marked(11 * time.Minute), want: CreateMachine, about: "b: platform.apiServer, its change in place did not end: its objects could not be changed"},
		"BeginFailsOnly": {reason: "it is tried again", in: inPlace(3, Only), change: marked(11 * time.Minute), want: UpdateMachine, on: "b"},
		"BeginFailsOnlyScales": {
			reason: "a machine that is missing is created", in: inPlace(3, Only), change: func(in *Input) {
				marked(11 * time.Minute)(in)
				in.Replicas = 5
			}, want: CreateMachine,
		},
		"TimeNotReadable": {
			reason: "a change without a time would never be late", in: inPlace(3, Prefer), change: func(in *Input) {
				begun(time.Minute)(in)
				in.Machines[1].UpdatingSince = time.Time{}
			}, want: CreateMachine, about: "b: its change in place did not end",
		},
		"Expires": {
			reason: "the host agent renews certificates, before other changes", in: inPlace(3, Prefer), change: func(in *Input) { expires(in, 2) },
			want: UpdateMachine, on: "c", about: "its certificates expire soon", also: func(d Decision) bool { return d.RenewCertificates.Equal(now.Add(48 * time.Hour)) },
		},
		"ExpiresAlone": {
			reason: "no machine is replaced", in: running(3), change: func(in *Input) {
				in.InPlace = Only
				expires(in, 2)
			}, want: UpdateMachine, on: "c",
		},
		"ExpiresNever": {
			reason: "no host agent follows", in: running(3), change: func(in *Input) { expires(in, 2) }, want: CreateMachine, about: "to replace c: its certificates expire soon",
		},
		"ContinuedRenewal": {
			reason: "the NovaConfig may not have the time yet", in: inPlace(3, Prefer), change: func(in *Input) {
				marked(time.Minute)(in)
				expires(in, 1)
			}, want: UpdateMachine, on: "b", also: func(d Decision) bool { return !d.RenewCertificates.IsZero() },
		},
		"OnlyExpires": {
			reason: "a field that waits for users stops no replacement of expiring certificates", in: inPlace(3, Only), change: func(in *Input) {
				replaced(in)
				expires(in, 2)
			}, want: CreateMachine, about: "to replace c",
		},
		"OnlyFailedExpires": {
			reason: "a change that does not end stops no replacement of expiring certificates", in: inPlace(3, Only), change: func(in *Input) {
				begun(11 * time.Minute)(in)
				expires(in, 2)
			}, want: CreateMachine, about: "to replace c",
		},
		"OnlyDeletesExpired": {
			reason: "a machine that only differs is kept", in: inPlace(4, Only), change: func(in *Input) {
				in.Replicas, in.Machines[3].Differs = 3, nil
				expires(in, 2)
			}, want: DeleteMachine, on: "c",
		},
		"OneAtATime": {reason: "the next one waits", in: inPlace(3, Prefer), change: begun(time.Minute), want: Wait, about: "machine b to be changed in place: a step failed"},
		"NotScaled": {
			reason: "no machine is added meanwhile", in: inPlace(3, Prefer), change: func(in *Input) {
				begun(time.Minute)(in)
				in.Replicas = 5
			}, want: Wait, about: "machine b",
		},
		"Failed":     {reason: "a replacement is the last way", in: inPlace(3, Prefer), change: begun(11 * time.Minute), want: CreateMachine, about: "b: its change in place did not end: a step failed"},
		"OnlyFailed": {reason: "nothing else is changed", in: inPlace(3, Only), change: begun(11 * time.Minute), want: Wait, about: "machine b to be changed in place: a step failed"},
		"OnlyFailedScales": {
			reason: "a machine that is missing is created", in: inPlace(3, Only), change: func(in *Input) {
				begun(11 * time.Minute)(in)
				in.Replicas = 5
			}, want: CreateMachine,
		},
		"FailedFirst": {
			reason: "it is deleted once its replacement has joined, and no other one", in: inPlace(4, Prefer), change: func(in *Input) {
				begun(11 * time.Minute)(in)
				in.Replicas, in.Machines[3].Differs = 3, nil
			}, want: DeleteMachine, on: "b",
		},
		"GivenUp": {reason: "users end a change with Never", in: inPlace(3, Never), change: begun(11 * time.Minute), want: CreateMachine, about: "did not end"},
		"Endpoint": {
			reason: "the address is moved first", in: inPlace(3, Prefer), change: func(in *Input) {
				for i := range in.Machines {
					in.Machines[i].On = Node{Name: in.Machines[i].Name, Ready: true, Responds: true}
					if i > 0 {
						in.Machines[i].Differs = nil
					}
				}
				in.Endpoint = &Endpoint{Holder: "a", Confirmed: true, KubeVIP: true}
			}, want: MoveEndpoint, on: "a",
		},
		"OnlyKubeVIP": {
			reason: "kube-vip on the machine keeps running", in: inPlace(3, Prefer), change: func(in *Input) {
				for i := range in.Machines {
					in.Machines[i].On = Node{Name: in.Machines[i].Name, Ready: true, Responds: true, KubeVIPFails: i > 0}
					if i > 0 {
						in.Machines[i].Differs = nil
					}
				}
				in.Endpoint = &Endpoint{Holder: "a", Confirmed: true, KubeVIP: true}
			}, want: UpdateMachine, on: "a", also: func(d Decision) bool { return d.EndpointNotMoved },
		},
	})
}
