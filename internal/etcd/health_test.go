package etcd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHealth(t *testing.T) {
	up := func(name string) Member { return Member{Name: name, Answers: true} }
	down := func(name string) Member { return Member{Name: name} }
	for name, tc := range map[string]struct {
		reason  string
		health  Health
		nodes   []string
		quorum  bool
		want    []string
		foreign []string
	}{
		"Whole": {
			reason: "three voters that answer",
			health: Health{Members: []Member{up("a"), up("b"), up("c")}}, nodes: []string{"a", "b", "c"}, quorum: true,
		},
		"OneDown": {
			reason: "a majority is left",
			health: Health{Members: []Member{up("a"), up("b"), down("c")}}, nodes: []string{"a", "b", "c"}, quorum: true,
			want: []string{"Member c does not answer"},
		},
		"TwoDown": {
			reason: "no majority is left",
			health: Health{Members: []Member{up("a"), down("b"), down("c")}}, nodes: []string{"a", "b", "c"},
			want: []string{"Fewer than a majority of the voting members answer", "Member b does not answer", "Member c does not answer"},
		},
		"Even": {
			reason: "half is no majority",
			health: Health{Members: []Member{up("a"), down("b")}}, nodes: []string{"a", "b"},
			want: []string{"Fewer than a majority of the voting members answer", "Member b does not answer"},
		},
		"Joining": {
			reason: "a learner does not vote and so takes no majority away",
			health: Health{Members: []Member{up("a"), {Name: "b", Learner: true}, {Learner: true}}}, nodes: []string{"a", "b", "c"}, quorum: true,
			want: []string{
				"A member was added and has not started",
				"Member b is a learner and does not vote yet", "Node c has no member",
			},
		},
		"Left": {
			reason: "a member without a node is named",
			health: Health{Members: []Member{up("a"), up("b"), down("x")}}, nodes: []string{"a", "b"}, quorum: true,
			want: []string{"Member x belongs to no control plane node"}, foreign: []string{"x"},
		},
		"Alarm": {
			reason: "alarms count",
			health: Health{Members: []Member{up("a")}, Alarms: []string{"Alarm NOSPACE is raised", "Alarm NOSPACE is raised"}},
			nodes:  []string{"a"}, quorum: true, want: []string{"Alarm NOSPACE is raised"},
		},
		"Nobody": {
			reason: "no member is no majority", want: []string{"Fewer than a majority of the voting members answer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.health.Quorum(); got != tc.quorum {
				t.Errorf("%s: quorum: want %t, got %t", tc.reason, tc.quorum, got)
			}
			if diff := cmp.Diff(tc.want, tc.health.Problems(tc.nodes)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.foreign, tc.health.Foreign(tc.nodes)); diff != "" {
				t.Errorf("%s: foreign (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
