package modules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// Member is a selected Cluster in a rollout.
type Member struct {
	Key types.NamespacedName
	// Wave is the value of the Cluster's wave label. Clusters without it come
	// last.
	Wave string
	// Revision is the revision of its modules. It is not set before the first.
	Revision string
	// Since is when its modules changed to that revision.
	Since time.Time
	// Ready means that all its modules are ready at that revision.
	Ready bool
	// Reachable means that the workload cluster responds.
	Reachable bool
	// Paused means that the Cluster is paused: nothing is changed until it is
	// resumed.
	Paused bool
	// Waiting means that it gets its first modules after those of another set.
	Waiting bool
	// Refused means that the current revision cannot be rendered for it.
	Refused bool
	// Granted is the time since when it may change to the current revision. It
	// is zero if it may not yet.
	Granted time.Time
}

// open reports whether a change could be applied now.
func (m *Member) open() bool { return m.Reachable && !m.Paused }

// Rollout lists the Clusters that may change to the current revision, and the
// progress.
type Rollout struct {
	// Granted are the Clusters that may change to the current revision, or
	// already have.
	Granted map[types.NamespacedName]bool
	// Failed are the Clusters that were not ready at the revision in time, or
	// for which it cannot be rendered.
	Failed []types.NamespacedName
	// Updated and Ready count Clusters at the current revision, and those of
	// them whose modules are ready.
	Updated, Ready int
	// Wave is the first incomplete wave. It is empty if all are complete, and
	// for Clusters without a wave.
	Wave string
	// Halted is the reason why no more Clusters are updated. It is empty if the
	// rollout continues.
	Halted string
	// Done means that every Cluster has the current revision, or waits for another
	// set.
	Done bool
	// Next is when the next Cluster would count as failed. It is zero if none
	// can.
	Next time.Time
}

// PlanRollout returns the Clusters that may change to the current revision now.
//
// A Cluster without modules may change immediately: it is new, and would have
// no network while it waits. A Cluster that has the revision keeps it. The
// others follow wave by wave: a wave begins when all reachable Clusters before
// it are ready, or have failed within the budget. A Cluster that is unreachable
// or paused blocks no other, and is updated when it is back.
func PlanRollout(members []Member, revision string, r addonsv1.Rollout, now time.Time) Rollout {
	p := &planner{revision: revision, rollout: r, now: now, out: Rollout{Granted: map[types.NamespacedName]bool{}}}
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int {
		return cmp.Or(compareWaves(a.Wave, b.Wave), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	waiting := 0
	for i := range sorted {
		p.count(&sorted[i])
		if sorted[i].Revision == "" && sorted[i].Waiting {
			waiting++
		}
	}
	p.out.Done = p.out.Updated+waiting == len(sorted)
	if p.out.Done {
		return p.out
	}
	budget := scaled(r.FailureBudget, intstr.FromInt32(0), len(sorted), false)
	switch {
	case len(p.out.Failed) > budget:
		p.out.Halted = fmt.Sprintf("%d Clusters failed, and %d may: %s", len(p.out.Failed), budget, p.out.Failed[0])
	case ptr.Deref(r.Suspend, false):
		p.out.Halted = "Suspended"
	}
	for start := 0; start < len(sorted); {
		end := start
		for end < len(sorted) && compareWaves(sorted[end].Wave, sorted[start].Wave) == 0 {
			end++
		}
		if !p.wave(sorted[start:end]) {
			break
		}
		start = end
	}
	return p.out
}

type planner struct {
	revision string
	rollout  addonsv1.Rollout
	now      time.Time
	out      Rollout
}

// count counts a Cluster, in any wave.
func (p *planner) count(m *Member) {
	switch {
	case m.Revision == "":
		p.out.Granted[m.Key] = true
	case p.failed(m):
		// It stays granted: the obstacle may disappear without a change here.
		p.out.Granted[m.Key] = true
		p.out.Failed = append(p.out.Failed, m.Key)
	case m.Revision == p.revision:
		p.out.Granted[m.Key] = true
		if !m.Ready && m.open() {
			p.expect(m.Since)
		}
	}
	if m.Revision == p.revision {
		p.out.Updated++
		if m.Ready {
			p.out.Ready++
		}
	}
}

// expect schedules the next check of a Cluster that has been changing since
// then, when its timeout ends.
func (p *planner) expect(since time.Time) {
	if deadline := since.Add(p.rollout.Timeout()); p.out.Next.IsZero() || deadline.Before(p.out.Next) {
		p.out.Next = deadline
	}
}

// failed reports whether a Cluster was not ready in time after a change to the
// revision, or did not change although it was granted. An unreachable or paused
// Cluster has not failed: its modules are not the cause. A Cluster without
// modules has not failed either: nothing was changed.
func (p *planner) failed(m *Member) bool {
	switch {
	case m.Revision == "", !m.open():
		return false
	case m.Revision == p.revision:
		return !m.Ready && p.late(m.Since)
	default:
		return m.Refused || p.late(m.Granted)
	}
}

// late reports whether the timeout of a change that began then has ended.
func (p *planner) late(since time.Time) bool {
	return !since.IsZero() && !p.now.Before(since.Add(p.rollout.Timeout()))
}

// wave grants as many Clusters of one wave as may change, and reports whether
// the wave is complete.
func (p *planner) wave(members []Member) bool {
	changing, through := 0, true
	var waiting []*Member
	for i := range members {
		m := &members[i]
		switch {
		case m.Revision == "", !m.open(), p.failed(m):
		case m.Revision != p.revision:
			waiting, through = append(waiting, m), false
		case !m.Ready:
			changing, through = changing+1, false
		}
	}
	if through {
		return true
	}
	p.out.Wave = members[0].Wave
	if p.out.Halted != "" {
		return false
	}
	limit := scaled(p.rollout.MaxConcurrent, intstr.FromString("100%"), len(members), true)
	for _, m := range waiting {
		if changing >= limit {
			break
		}
		p.out.Granted[m.Key] = true
		if m.Granted.IsZero() {
			p.expect(p.now)
		} else {
			p.expect(m.Granted)
		}
		changing++
	}
	return false
}

// scaled returns a number, or a percentage of total; at least 1 if rounded up.
func scaled(value *intstr.IntOrString, otherwise intstr.IntOrString, total int, up bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(value, otherwise)), total, up)
	if err != nil {
		// The CRD allows no other text; the smallest number is the safe choice.
		n = 0
	}
	if up {
		return max(n, 1)
	}
	return n
}

// compareWaves orders numbers by value, then words, then Clusters without a
// wave.
func compareWaves(a, b string) int {
	rank := func(wave string) (int, int) {
		if wave == "" {
			return 2, 0
		}
		if n, err := strconv.Atoi(wave); err == nil {
			return 0, n
		}
		return 1, 0
	}
	kindA, numberA := rank(a)
	kindB, numberB := rank(b)
	return cmp.Or(cmp.Compare(kindA, kindB), cmp.Compare(numberA, numberB), cmp.Compare(a, b))
}
