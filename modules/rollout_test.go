package modules

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func member(name, wave, revision string, ready bool) Member {
	return Member{
		Key: types.NamespacedName{Namespace: "ns", Name: name}, Wave: wave, Revision: revision,
		Since: noon.Add(-time.Minute), Ready: ready, Reachable: true,
	}
}

func late(m Member) Member {
	m.Since = noon.Add(-time.Hour)
	return m
}

func away(m Member) Member {
	m.Reachable = false
	return m
}

func paused(m Member) Member {
	m.Paused = true
	return m
}

func waiting(m Member) Member {
	m.Waiting = true
	return m
}

func refused(m Member) Member {
	m.Refused = true
	return m
}

func granted(m Member, ago time.Duration) Member {
	m.Granted = noon.Add(-ago)
	return m
}

func TestPlanRollout(t *testing.T) {
	one := ptr.To(intstr.FromInt32(1))
	cases := map[string]struct {
		members []Member
		rollout addonsv1.Rollout
		granted []string
		failed  int
		wave    string
		halted  string
		done    bool
	}{
		"AllAtOnce": {
			members: []Member{member("a", "", "1", true), member("b", "", "1", true)},
			granted: []string{"a", "b"},
		},
		"NewClusterAtOnce": {
			members: []Member{member("a", "1", "1", true), member("b", "9", "", false)},
			rollout: addonsv1.Rollout{Suspend: ptr.To(true)},
			granted: []string{"b"}, wave: "1", halted: "Suspended",
		},
		"WaitingForAnotherSetIsNoRollout": {
			members: []Member{member("a", "1", "2", true), waiting(member("b", "1", "", false))},
			granted: []string{"a", "b"}, done: true,
		},
		"WaitingForAnotherSetBesideARollout": {
			members: []Member{member("a", "1", "1", true), waiting(member("b", "1", "", false))},
			granted: []string{"a", "b"}, wave: "1",
		},
		"FirstWaveFirst": {
			members: []Member{member("a", "2", "1", true), member("b", "1", "1", true), member("c", "", "1", true)},
			granted: []string{"b"}, wave: "1",
		},
		"NumbersByValueBeforeWords": {
			members: []Member{member("a", "10", "1", true), member("b", "9", "1", true), member("c", "last", "1", true)},
			granted: []string{"b"}, wave: "9",
		},
		"NextWaveWaitsForReady": {
			members: []Member{member("a", "1", "2", false), member("b", "2", "1", true)},
			granted: []string{"a"}, wave: "1",
		},
		"NextWave": {
			members: []Member{member("a", "1", "2", true), member("b", "2", "1", true)},
			granted: []string{"a", "b"}, wave: "2",
		},
		"OneAtATime": {
			members: []Member{member("a", "", "1", true), member("b", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one},
			granted: []string{"a"},
		},
		"OneAtATimeWhileItChanges": {
			members: []Member{member("a", "", "2", false), member("b", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one},
			granted: []string{"a"},
		},
		"PercentageRoundsUp": {
			members: []Member{member("a", "", "1", true), member("b", "", "1", true), member("c", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: ptr.To(intstr.FromString("34%"))},
			granted: []string{"a", "b"},
		},
		"FailureStops": {
			members: []Member{late(member("a", "", "2", false)), member("b", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one},
			granted: []string{"a"}, failed: 1, halted: "1 Clusters failed, and 0 may: ns/a",
		},
		"FailureWithinBudget": {
			members: []Member{late(member("a", "", "2", false)), member("b", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one, FailureBudget: one},
			granted: []string{"a", "b"}, failed: 1,
		},
		"FailureBudgetRoundsDown": {
			members: []Member{late(member("a", "", "2", false)), member("b", "", "1", true), member("c", "", "1", true)},
			rollout: addonsv1.Rollout{FailureBudget: ptr.To(intstr.FromString("33%"))},
			granted: []string{"a"}, failed: 1, halted: "1 Clusters failed, and 0 may: ns/a",
		},
		"DeadTenantHoldsNobodyUp": {
			members: []Member{away(member("a", "1", "1", false)), away(late(member("b", "1", "2", false))), member("c", "2", "1", true)},
			granted: []string{"b", "c"}, wave: "2",
		},
		"RefusedStops": {
			members: []Member{refused(member("a", "1", "1", true)), member("b", "1", "1", true)},
			granted: []string{"a"}, failed: 1, wave: "1", halted: "1 Clusters failed, and 0 may: ns/a",
		},
		"RefusedWithinBudgetLeavesItsPlace": {
			members: []Member{refused(member("a", "1", "1", true)), member("b", "1", "1", true), member("c", "2", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one, FailureBudget: one},
			granted: []string{"a", "b"}, failed: 1, wave: "1",
		},
		"RefusedWithinBudgetEndsItsWave": {
			members: []Member{refused(member("a", "1", "1", true)), member("b", "2", "1", true)},
			rollout: addonsv1.Rollout{FailureBudget: one},
			granted: []string{"a", "b"}, failed: 1, wave: "2",
		},
		"RefusedAndNew": {
			members: []Member{refused(member("a", "", "", false)), member("b", "", "1", true)},
			granted: []string{"a", "b"},
		},
		"RefusedAndPaused": {
			members: []Member{paused(refused(member("a", "1", "1", true))), member("b", "2", "1", true)},
			granted: []string{"b"}, wave: "2",
		},
		"GrantedAndStillTakingIt": {
			members: []Member{granted(member("a", "", "1", true), time.Minute), member("b", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one},
			granted: []string{"a"},
		},
		"GrantedAndNotTakenInTime": {
			members: []Member{granted(member("a", "", "1", true), time.Hour), member("b", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one, FailureBudget: one},
			granted: []string{"a", "b"}, failed: 1,
		},
		"PausedClusterHoldsNobodyUp": {
			members: []Member{paused(member("a", "1", "1", true)), paused(late(member("b", "1", "2", false))), member("c", "2", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one},
			granted: []string{"b", "c"}, wave: "2",
		},
		"PausedClusterLeavesItsPlace": {
			members: []Member{paused(member("a", "", "1", true)), member("b", "", "1", true), member("c", "", "1", true)},
			rollout: addonsv1.Rollout{MaxConcurrent: one},
			granted: []string{"b"},
		},
		"CatchesUpBeforeLaterWavesGoOn": {
			members: []Member{member("a", "1", "1", true), member("b", "2", "2", true), member("c", "2", "1", true)},
			granted: []string{"a", "b"}, wave: "1",
		},
		"Done": {
			members: []Member{member("a", "", "2", true), late(member("b", "", "2", false))},
			granted: []string{"a", "b"}, failed: 1, done: true,
		},
		"Paused": {
			members: []Member{member("a", "", "2", false), member("b", "", "1", true)},
			rollout: addonsv1.Rollout{Suspend: ptr.To(true)},
			granted: []string{"a"}, halted: "Suspended",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := PlanRollout(tc.members, "2", tc.rollout, noon)
			var granted []string
			for key := range got.Granted {
				granted = append(granted, key.Name)
			}
			slices.Sort(granted)
			if !slices.Equal(granted, tc.granted) || len(got.Failed) != tc.failed || got.Wave != tc.wave ||
				got.Halted != tc.halted || got.Done != tc.done {
				t.Errorf("granted %v, %d failed, wave %q, halted %q, done %t", granted, len(got.Failed), got.Wave, got.Halted, got.Done)
			}
		})
	}
}

// With any delays and failures, no more Clusters than the limit change at a
// time, waves keep their order, and every Cluster that can change does so in
// the end.
func TestPlanRolloutConverges(t *testing.T) {
	rollout := addonsv1.Rollout{MaxConcurrent: ptr.To(intstr.FromInt32(2))}
	var members []Member
	for _, wave := range []string{"1", "2", ""} {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			members = append(members, member(name+wave, wave, "1", true))
		}
	}
	for step := range 100 {
		plan := PlanRollout(members, "2", rollout, noon)
		if plan.Done && plan.Ready == len(members) {
			return
		}
		changing := 0
		for i := range members {
			m := &members[i]
			if m.Revision == "2" && !m.Ready && step%2 == 0 {
				m.Ready = true
			} else if plan.Granted[m.Key] && m.Revision == "1" {
				m.Revision, m.Ready = "2", false
			}
			if m.Revision == "2" && !m.Ready {
				changing++
			}
		}
		if changing > 2 {
			t.Fatalf("%d Clusters change at step %d", changing, step)
		}
	}
	t.Fatal("the rollout never ends")
}

func TestPlanRolloutTellsWhenToLookAgain(t *testing.T) {
	cases := map[string]struct {
		member Member
		want   time.Time
	}{
		"Changing": {member("a", "", "2", false), noon.Add(4 * time.Minute)},
		"Begun":    {member("a", "", "1", true), noon.Add(5 * time.Minute)},
		"Granted":  {granted(member("a", "", "1", true), 2*time.Minute), noon.Add(3 * time.Minute)},
		"Failed":   {late(member("a", "", "2", false)), time.Time{}},
		"Paused":   {paused(member("a", "", "2", false)), time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := PlanRollout([]Member{tc.member, member("b", "", "1", true)}, "2",
				addonsv1.Rollout{TimeoutSeconds: 300, MaxConcurrent: ptr.To(intstr.FromInt32(1)), Suspend: ptr.To(tc.want.IsZero())}, noon)
			if !got.Next.Equal(tc.want) {
				t.Errorf("Next = %s, want %s", got.Next, tc.want)
			}
		})
	}
}
