package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRolloutChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		in     Input
		change func(in *Input)
		want   []string
	}{
		"UpToDate": {reason: "nothing is to do", in: running(3)},
		"InPlace": {
			reason: "the leader comes last", in: inPlace(3, Prefer),
			want: []string{
				"b stays, to be changed in place: platform.apiServer", "c stays, to be changed in place: platform.apiServer",
				"a stays, to be changed in place: platform.apiServer",
			},
		},
		"Never": {
			reason: "machines are replaced", in: inPlace(1, Never), want: []string{"a is replaced, to be replaced: platform.apiServer"},
		},
		"Sole": {
			reason: "its API server would be missing", in: inPlace(1, Prefer), want: []string{"a is replaced, to be replaced, because it is the only machine: platform.apiServer"},
		},
		"SoleOnly": {
			reason: "users accept that its API server restarts", in: inPlace(1, Only), want: []string{"a stays, to be changed in place: platform.apiServer"},
		},
		"Fields": {
			reason: "the fields are the reason", in: inPlace(1, Only), change: func(in *Input) {
				in.Replicas, in.InPlace = 3, Prefer
				in.Machines[0].Differs, in.Machines[0].NeedReplacement = []string{"config.taints", "platform.apiServer"}, []string{"config.taints"}
			}, want: []string{"a is replaced, to be replaced, because these fields need another machine: config.taints"},
		},
		"Refused": {
			reason: "nothing is changed", in: inPlace(1, Only), change: func(in *Input) { in.Machines[0].NeedReplacement = []string{"config.taints"} },
			want: []string{"a stays, not to be changed, because these fields need another machine: config.taints"},
		},
		"NoNode": {
			reason: "it has no host agent yet", in: inPlace(3, Prefer), change: func(in *Input) {
				for i := range in.Machines {
					in.Machines[i].Node = i < 1
				}
				in.Machines = slices.Delete(in.Machines, 1, 2)
				in.Machines[0].Differs = nil
			}, want: []string{"c is replaced, to be replaced, because it is not a node and a member of etcd yet: platform.apiServer"},
		},
		"OnDelete": {
			reason: "users decide when", in: inPlace(1, Only), change: func(in *Input) { in.Strategy = OnDelete },
			want: []string{"a is replaced, to be replaced when it is deleted: platform.apiServer"},
		},
		"After": {
			reason: "the reason counts with Only too, and comes first", in: inPlace(3, Only), change: func(in *Input) {
				in.RolloutAfter = in.Machines[2].Created
				in.Machines[0].Created, in.Machines[1].Created = now, now
				in.Machines[2].Created = in.RolloutAfter.Add(-time.Second)
			}, want: []string{
				"c is replaced, to be replaced: platform.apiServer, it was created before rollout.after",
				"b stays, to be changed in place: platform.apiServer", "a stays, to be changed in place: platform.apiServer",
			},
		},
		"Expires": {
			reason: "certificates are renewed first", in: inPlace(3, Prefer), change: func(in *Input) {
				in.ExpiryWindow = time.Hour
				for i := range in.Machines {
					in.Machines[i].Differs = nil
				}
				in.Machines[2].CertificatesExpire, in.Machines[1].Differs = now, []string{"version"}
			}, want: []string{"c stays, to be changed in place: its certificates expire soon", "b stays, to be changed in place: version"},
		},
		"InProgress": {
			reason: "changes in progress come first", in: inPlace(3, Prefer), change: func(in *Input) {
				in.Machines[0].Deleting, in.Machines[2].Updating, in.Machines[2].UpdatingSince = true, true, now
			}, want: []string{"a is replaced, being deleted", "c stays, being changed in place", "b stays, to be changed in place: platform.apiServer"},
		},
		"Late": {
			reason: "a change that does not end fails", in: inPlace(3, Prefer), change: func(in *Input) {
				m := &in.Machines[2]
				m.Differs, m.Updating, m.UpdateBegun, m.UpdatingSince, m.UpdateProgress = nil, true, true, now.Add(-time.Hour), "a step failed"
				in.Machines[0].Differs, in.Machines[1].Differs = nil, nil
			}, want: []string{"c is replaced, to be replaced: its change in place did not end: a step failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.in)
			}
			var got []string
			for _, c := range Rollout(tc.in) {
				got = append(got, fmt.Sprintf("%s %s, %s", c.Machine, map[bool]string{true: "is replaced", false: "stays"}[c.Replaced], c.Text))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: got\n%s\nwant\n%s", tc.reason, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// What is decided next is the first change of the rollout.
func TestRolloutShowsTheDecision(t *testing.T) {
	seen := map[Action]int{}
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		one := func(of ...int) int { return of[r.IntN(len(of))] }
		in := inPlace(one(1, 3, 5), []InPlace{Never, Prefer, Only}[r.IntN(3)])
		in.MaxSurge, in.KubeadmVersion = one(0, 1), in.Version
		upgraded := r.IntN(3) == 0
		if upgraded {
			in.Version, in.KubeadmVersion = newerVersion, []string{newerVersion, "v1.36.3"}[r.IntN(2)]
		}
		if r.IntN(4) == 0 {
			in.RolloutAfter = now.Add(-time.Duration(r.IntN(3)) * time.Hour)
		}
		for i := range in.Machines {
			m := &in.Machines[i]
			m.Created = now.Add(-time.Duration(r.IntN(4)) * time.Hour)
			m.DeleteFirst, m.Domain = r.IntN(5) == 0, string(rune('x'+r.IntN(2)))
			if r.IntN(5) == 0 {
				in.ExpiryWindow, m.CertificatesExpire = time.Hour, now
			}
			switch r.IntN(5) {
			case 0:
				m.Differs = nil
				if upgraded {
					m.Version = newerVersion
				}
			case 1:
				m.NeedReplacement = m.Differs
			}
		}
		changes, d := Rollout(in), Decide(in)
		switch d.Action { //nolint:exhaustive // the others are no part of a rollout
		case UpdateMachine, DeleteMachine:
			if c := changes[0]; c.Machine != d.Machine || c.Replaced != (d.Action == DeleteMachine) {
				t.Fatalf("seed %d: %s %s, but the rollout begins with %+v", seed, d.Action, d.Machine, c)
			}
		case CreateMachine:
			if c := changes[0]; !c.Replaced || !strings.Contains(d.Reason, "to replace "+c.Machine+":") {
				t.Fatalf("seed %d: %s, but the rollout begins with %+v", seed, d.Reason, c)
			}
		case SetVersion:
			if c := changes[0]; !strings.Contains(d.Reason, "machine "+c.Machine+" ") && !c.Replaced {
				t.Fatalf("seed %d: %s, but the rollout begins with %+v", seed, d.Reason, c)
			}
		case Nothing:
			if len(changes) > 0 {
				t.Fatalf("seed %d: nothing is done, but the rollout has %+v", seed, changes)
			}
		}
		seen[d.Action]++
	}
	for _, action := range []Action{UpdateMachine, DeleteMachine, CreateMachine, SetVersion, Nothing, Wait} {
		if seen[action] == 0 {
			t.Errorf("no decision was %s", action)
		}
	}
}
