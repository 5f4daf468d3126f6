package plan

import (
	"testing"
	"time"
)

func TestEndpointWaitInterrupted(t *testing.T) {
	const limit = 10 * time.Minute
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		change func(in *Input, d *Decision, m *Machine)
		want   bool
	}{
		"Waits": {reason: "it waits", change: func(_ *Input, d *Decision, _ *Machine) { d.MovesEndpoint = true }},
		"Other": {reason: "another action comes first", change: func(_ *Input, d *Decision, _ *Machine) { d.Machine = "other" }, want: true},
		"Held":  {reason: "another node has the address", change: func(in *Input, _ *Decision, _ *Machine) { in.Endpoint.Holder = "other" }, want: true},
		"HeldLate": {reason: "also after the limit", change: func(in *Input, _ *Decision, m *Machine) {
			in.Endpoint.Holder, m.EndpointMove.Since = "other", now.Add(-limit)
		}, want: true},
		"Over":     {reason: "the end of the time stays", change: func(_ *Input, _ *Decision, m *Machine) { m.EndpointMove.Since = now.Add(-limit) }},
		"Failed":   {reason: "the move is not tried again", change: func(_ *Input, _ *Decision, m *Machine) { m.EndpointMove.Failed = true }},
		"NoWait":   {reason: "it never waited", change: func(_ *Input, _ *Decision, m *Machine) { m.EndpointMove.Since = time.Time{} }},
		"NoAnswer": {reason: "the holder is unknown", change: func(in *Input, _ *Decision, _ *Machine) { in.Endpoint = nil }},
		"NoEtcd":   {reason: "the decision depends on etcd", change: func(in *Input, d *Decision, _ *Machine) { in.Etcd, d.Machine = nil, "" }},
		"NoRestores": {reason: "the decision depends on restores", change: func(in *Input, d *Decision, _ *Machine) {
			in.Requirements.RestoresUnknown, d.Machine = true, ""
		}},
		"Removed": {reason: "the machine is removed now", change: func(*Input, *Decision, *Machine) {}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Now: now, Etcd: &Etcd{}, Endpoint: &Endpoint{Holder: "m", Confirmed: true}, Limits: Limits{EndpointMoveTimeout: limit}}
			m := Machine{Name: "m", On: Node{Name: "m"}, EndpointMove: EndpointMove{Since: now.Add(-time.Minute)}}
			d := Decision{Action: RemoveMember, Machine: "m"}
			tc.change(&in, &d, &m)
			if got := EndpointWaitInterrupted(in, d, m); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// The address moves once in a rollout: a connection to it breaks each time.
func TestEndpointMovesOnceInARollout(t *testing.T) {
	holds := func(in *Input, holder string) {
		in.Endpoint = &Endpoint{Holder: holder, Confirmed: true, KubeVIP: true}
		for i := range in.Machines {
			in.Machines[i].On = Node{Name: in.Machines[i].Name, Ready: true, Responds: true}
		}
	}
	replaced := inPlace(4, Never)
	replaced.Replicas, replaced.Machines[3].Differs = 3, nil
	check(t, map[string]step{
		"ToNewMachine": {
			reason: "the other old machines are deleted next", in: replaced, change: func(in *Input) {
				holds(in, "b")
				in.Machines[1].Deleting, in.Machines[1].AtHook = true, true
			}, want: MoveEndpoint, on: "b", also: func(d Decision) bool { return d.Node == "d" },
		},
		"HolderLast": {
			reason: "the other machines have been changed when it is its turn", in: inPlace(3, Prefer), change: func(in *Input) { holds(in, "b") },
			want: UpdateMachine, on: "c",
		},
		"LeaderBeforeHolder": {
			reason: "etcd elects another leader within a second", in: inPlace(3, Prefer), change: func(in *Input) {
				holds(in, "b")
				in.Machines[2].Differs = nil
			}, want: UpdateMachine, on: "a",
		},
		"ToChangedMachine": {
			reason: "a user wants the holder to be changed first", in: inPlace(3, Prefer), change: func(in *Input) {
				holds(in, "b")
				in.Machines[1].DeleteFirst, in.Machines[2].Differs = true, nil
			}, want: MoveEndpoint, on: "b", also: func(d Decision) bool { return d.Node == "c" },
		},
	})
}
