package modules

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

func TestRemoveOrphanedHolds(t *testing.T) {
	back := fmt.Sprintf(holdForModule, "v1.37.0", "cni (<1.37)")
	cases := map[string]struct {
		annotation, value string
		swept             bool
	}{
		"SetThere":          {holdAnnotation("base"), holdInAdvance, false},
		"SetElsewhereThere": {holdAnnotation("team.base"), back, false},
		"Ahead":             {holdAnnotation("gone"), holdInAdvance, true},
		"Back":              {holdAnnotation("team.gone"), back, true},
		"OfAnotherOwner":    {holdAnnotation("gone"), "Ask the team first", false},
		"AlmostOurs":        {holdAnnotation("gone"), back + " yet", false},
		"Empty":             {holdAnnotation("gone"), "", false},
		"AnotherHook":       {clusterv1.BeforeClusterUpgradeHookAnnotationPrefix, holdInAdvance, false},
		"AnotherAnnotation": {"example.com/gone", holdInAdvance, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tc.annotation: tc.value}}}
			removeOrphanedHolds(cluster, map[string]bool{"base": true, "team.base": true})
			if _, left := cluster.Annotations[tc.annotation]; left == tc.swept {
				t.Errorf("left: %v", slices.Collect(maps.Keys(cluster.Annotations)))
			}
		})
	}
}

func TestRemoveOrphanedHoldsConditions(t *testing.T) {
	cluster := &clusterv1.Cluster{}
	for _, c := range []string{clusterv1.AvailableCondition, addonsv1.ClusterCondition("base"), addonsv1.ClusterCondition("gone"), addonsv1.ClusterCondition("team.base")} {
		conditions.Set(cluster, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Test"})
	}
	got := removeOrphanedHolds(cluster, map[string]bool{"base": true})
	if want := []string{addonsv1.ClusterCondition("gone"), addonsv1.ClusterCondition("team.base")}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("sweep() = %v, want %v", got, want)
	}
	if len(cluster.Status.Conditions) != 2 {
		t.Errorf("left: %v", cluster.Status.Conditions)
	}
}
