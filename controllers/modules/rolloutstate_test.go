package modules

import (
	"slices"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// The time of a Cluster starts with its grant, not with each reconcile. It starts again with each
// revision and after the Cluster lost its grant.
func TestRolloutStateGrants(t *testing.T) {
	set, cluster := key{Name: "set"}, key{Name: "cluster"}
	begin := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	turn, none := modules.Rollout{Granted: map[key]bool{cluster: true}}, modules.Rollout{}
	var l rolloutState
	for i, step := range []struct {
		revision string
		plan     modules.Rollout
		news     bool
		since    int
	}{
		{"1", turn, true, 0},
		{"1", turn, false, 0},
		{"2", turn, true, 2},
		{"2", none, false, -1},
		{"2", turn, true, 4},
	} {
		added := l.setGrants(set, step.revision, step.plan, begin.Add(time.Duration(i)*time.Minute))
		since, may := l.isGranted(set, cluster, step.revision)
		if slices.Contains(added, cluster) != step.news || may != (step.since >= 0) {
			t.Errorf("step %d: added %v, may %t", i, added, may)
		}
		if want := begin.Add(time.Duration(step.since) * time.Minute); may && !since.Equal(want) {
			t.Errorf("step %d: since %s, want %s", i, since, want)
		}
	}
	if _, may := l.isGranted(set, cluster, "1"); may {
		t.Error("an earlier revision may be taken")
	}
}
